"""The registry of retention holds: a consumer of old log is in here before anything may delete it.

Holds that outlive a process are restored from their files before the log is opened, so the first
compaction already knows them; their owners come later and take them over (`take`). An owner that is
no longer configured has its hold released, and the log says so: an abandoned hold does not fill the
disk unseen.

Any thread may take, move and release; each call is a few operations on one dictionary under a lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol

from headwater.core.clock import Clock
from headwater.core.errors import HeadwaterError
from headwater.model.retention import MACHINES_LOG, HoldOwner, RetentionHold, retention_floor

_log: Final = logging.getLogger("headwater.retention")


class LogMeasure(Protocol):
    """How long a log is, for its holds."""

    def behind_bytes(self, position: int) -> int:
        """From a position to the end."""

    def held_bytes(self, position: int) -> int:
        """Of files that could have been deleted, were it not for this position."""


class Hold:
    """One owner's claim on old log. The owner moves it; compaction asks the registry."""

    def __init__(
        self,
        name: str,
        owner: HoldOwner,
        log: str,
        position: int | None,
        now_ms: int,
        *,
        durable: bool,
        bytes_max: int | None,
    ) -> None:
        self.name = name
        self.label = name
        """For people; the name is for finding it again."""
        self.owner = owner
        self.log = log
        self.position = position
        self.since_ms = self.moved_ms = now_ms
        self.durable = durable
        self.bytes_max = bytes_max
        self.save: Callable[[], None] | None = None
        """Called before something is deleted, not as the owner of the domain state: it may save a
        newer position and move the hold there."""
        self.gave_way = False
        """The log says once that the hold gives way, until its owner has caught up."""


class RetentionHolds:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._holds: dict[tuple[str, str], Hold] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def take(
        self,
        name: str,
        owner: HoldOwner,
        position: int | None,
        *,
        log: str = MACHINES_LOG,
        durable: bool = True,
        bytes_max: int | None = None,
    ) -> Hold:
        """A hold under this name from now on. One that was restored is handed over, with the
        position it has, if it has one."""
        with self._lock:
            hold = self._holds.get((log, name))
            if hold is None:
                hold = Hold(
                    name, owner, log, position, self._clock.wall_ms(),
                    durable=durable, bytes_max=bytes_max,
                )  # fmt: skip
                self._holds[log, name] = hold
            elif hold.position is None:
                hold.position = position
            return hold

    def move(self, hold: Hold, position: int) -> None:
        """The owner needs nothing before this any more."""
        if hold.position is None or position > hold.position:
            hold.position = position
            hold.moved_ms = self._clock.wall_ms()

    def find(self, name: str, log: str = MACHINES_LOG) -> Hold | None:
        return self._holds.get((log, name))

    def owned_by(self, owner: HoldOwner) -> list[Hold]:
        with self._lock:
            return [each for each in self._holds.values() if each.owner is owner]

    def release(self, hold: Hold, why: str | None = None) -> None:
        """The hold is over. `why`: it was meant to last, so a log line says that it does not."""
        with self._lock:
            if self._holds.get((hold.log, hold.name)) is not hold:
                return
            del self._holds[hold.log, hold.name]
        if why is not None:
            _log.warning(
                "the retention hold %s on the log of %s is released at offset %s: %s",
                hold.label, hold.log, hold.position, why,
            )  # fmt: skip

    def of(self, log: str, measure: LogMeasure) -> list[RetentionHold]:
        """All holds on a log as they are now, the one that is furthest behind first."""
        with self._lock:
            holds = [each for each in self._holds.values() if each.log == log]
        seen = [_as_it_is(each, measure) for each in holds]
        return sorted(seen, key=lambda each: (each.position or 0, each.name))

    def save(self, log: str) -> None:
        """Let every holder put its position on disk, before something is deleted. One that cannot
        be saved stays where it is, and so does the log. Not for the owner's own thread."""
        for hold in [each for each in list(self._holds.values()) if each.log == log]:
            if hold.save is None:
                continue
            try:
                hold.save()
            except (HeadwaterError, OSError) as error:
                _log.warning("the position of %s cannot be saved: %s", hold.label, error)

    def floor(self, log: str, measure: LogMeasure) -> int | None:
        """Nothing from this offset on may be deleted; None without any hold."""
        seen = self.of(log, measure)
        for each in seen:
            self._log_giving_way(each)
        return retention_floor(seen)

    def _log_giving_way(self, seen: RetentionHold) -> None:
        hold = self._holds.get((seen.log, seen.name))
        if hold is None or hold.gave_way == seen.gives_way:
            return
        hold.gave_way = seen.gives_way
        if seen.gives_way:
            _log.warning(
                "%s is %s bytes behind, more than the %s that are kept for it: "
                "what is deleted now it gets as a gap",
                hold.label, seen.behind_bytes, seen.bytes_max,
            )  # fmt: skip


def _as_it_is(hold: Hold, measure: LogMeasure) -> RetentionHold:
    position = hold.position
    return RetentionHold(
        hold.name,
        hold.label,
        hold.owner,
        hold.log,
        position,
        None if position is None else measure.behind_bytes(position),
        measure.held_bytes(position or 0),
        hold.since_ms,
        hold.moved_ms,
        hold.durable,
        hold.bytes_max,
    )
