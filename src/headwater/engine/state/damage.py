"""What cannot be served, and why: damage that reads and loading met, each range once, for logs,
readiness and metrics; and parts of a data directory that are away while the rest is served.

A range is noted when a read finds it, not at each later read: from then on the topic knows the seqs
and reports them to readers by itself. The server polls for new ranges, so damage costs a reader
nothing but finding it. Any thread may call `note`.

Topics are the engine itself: without them nothing starts. The machines and Kafka's log lie beside
them, each in a directory of its own; when one of them cannot be opened for damage (I5), it is held
here with the reason. Every call to it raises that reason, as a new error of the same class that
names file and offset; readiness, status, the log and a metric report it. It stays away until the
next start: a repair needs the directory's lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import msgspec

from headwater.core.errors import AccessError, StorageError
from headwater.model.damage import DamagedSeqs
from headwater.recovery.finding import Finding
from headwater.store.pair import RecordDamage

RANGES_MAX: Final = 1_000
"""Damaged ranges that are remembered; further ones are only counted."""


DamageKey = tuple[str, int | None]
"""A topic, and the organisation if it is one of Kafka's."""
_log = logging.getLogger("headwater.parts")


class DamagedRange(NamedTuple):
    """What an operator needs to find it."""

    topic: str
    path: str
    offset: int
    first_seq: int
    last_seq: int
    reason: str
    repaired: bool
    """It was in an index and could be read again from the data: no record is missing."""
    organisation: int | None = None
    """Whose Kafka topic it is in; None for other topics."""

    @property
    def file(self) -> str:
        """The file's name alone, for those who need not know where the server keeps its data."""
        return PurePath(self.path).name


class DamageLedger:
    """All damaged ranges since the start, in the order in which they were found."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[DamagedRange] = set()
        self.ranges: list[DamagedRange] = []
        """The first of them; `count` is of all."""
        self.count = 0
        self.findings: list[RecordDamage] = []
        self._unreported: list[DamagedRange] = []
        self._seqs: dict[DamageKey, DamagedSeqs] = {}

    def note(self, topic: str, finding: RecordDamage, organisation: int | None = None) -> bool:
        """False when this range is known already."""
        entry = DamagedRange(
            topic,
            str(finding.path),
            finding.offset,
            finding.seq,
            finding.end_seq,
            finding.reason,
            finding.repaired,
            organisation,
        )
        with self._lock:
            if entry in self._known:
                return False
            self.count += 1
            if not entry.repaired:
                seqs = self._seqs.setdefault((topic, organisation), DamagedSeqs())
                seqs.add(entry.first_seq, entry.last_seq + 1)
            if len(self.ranges) < RANGES_MAX:
                self._known.add(entry)
                self.ranges.append(entry)
                self._unreported.append(entry)
                self.findings.append(finding)
            return True

    def forget(self, *topics: str, organisation: int | None = None) -> None:
        """These are gone, and their files with them."""
        gone = {(topic, organisation) for topic in topics}
        with self._lock:
            kept = [
                at
                for at, entry in enumerate(self.ranges)
                if (entry.topic, entry.organisation) not in gone
            ]
            if len(kept) == len(self.ranges) and gone.isdisjoint(self._seqs):
                return
            self.ranges = [self.ranges[at] for at in kept]
            self.findings = [self.findings[at] for at in kept]
            self._known = set(self.ranges)
            for whose in gone:
                self._seqs.pop(whose, None)

    def take_new(self) -> list[DamagedRange]:
        """Those that were found since the last call."""
        if not self._unreported:
            return []
        with self._lock:
            unreported, self._unreported = self._unreported, []
            return unreported

    @property
    def overflowed(self) -> bool:
        """More ranges were found than are remembered."""
        return self.count > RANGES_MAX

    @property
    def records(self) -> dict[DamageKey, int]:
        """How many records were found that cannot be read, by topic and organisation."""
        with self._lock:
            return {whose: sum(map(len, seqs)) for whose, seqs in self._seqs.items()}

    def find(self, topic: str, seq: int) -> DamagedRange | None:
        """Where a record that cannot be read lies, if that was among the first to be found."""
        lasting = (each for each in self.ranges if not each.repaired and each.topic == topic)
        return next((each for each in lasting if each.first_seq <= seq <= each.last_seq), None)


class Part(Enum):
    MACHINES = "machines"
    KAFKA = "kafka"

    @property
    def not_served(self) -> str:
        return _NOT_SERVED[self]


_NOT_SERVED: Final = {
    Part.MACHINES: "the machines are not served",
    Part.KAFKA: "Kafka's log is not served",
}


class Parts(msgspec.Struct):
    """Which parts are away, and why. Set by the code that opens a part; read by every call."""

    away: dict[Part, StorageError] = msgspec.field(default_factory=dict)
    repaired: dict[Part, Sequence[Finding]] = msgspec.field(default_factory=dict)
    """What a start found that it goes on in spite of: skipped, cut, moved to quarantine."""

    def set_away(self, part: Part, error: Exception, directory: PurePath) -> None:
        """From now on the part is answered with this error. Call with what opening it raised."""
        reason = _as_storage_error(error, directory)
        self.away[part] = reason
        _log.error("%s: %s", part.not_served, reason)

    def require(self, part: Part) -> None:
        """Raises while the part is away."""
        reason = self.away.get(part)
        if reason is not None:
            raise self._error_of(part, reason)

    def error(self, part: Part) -> StorageError | None:
        """What `require` would raise; None while the part is served, or not used yet."""
        reason = self.away.get(part)
        return None if reason is None else self._error_of(part, reason)

    def _error_of(self, part: Part, reason: StorageError) -> StorageError:
        """A new one each time: an error that is raised again and again gathers tracebacks."""
        kind = type(reason)
        made = kind(
            f"{part.not_served}: {reason.what}",
            path=reason.path,
            offset=reason.offset,
            advice=reason.advice,
        )
        made.detail = self.detail(part)
        return made

    def detail(self, part: Part) -> dict[str, Any]:
        """The same for programs."""
        reason = self.away[part]
        return {
            "part": part.value,
            "what": reason.what,
            "file": None if reason.path is None else str(reason.path),
            "offset": reason.offset,
            "advice": reason.advice,
        }

    def repairs(self) -> list[dict[str, Any]]:
        """What was repaired, for readiness and status: it tells operators about their disk."""
        return [
            {"part": part.value, **finding.as_dict()}
            for part, findings in self.repaired.items()
            for finding in findings
        ]

    def details(self) -> list[dict[str, Any]]:
        return [self.detail(part) for part in Part if part in self.away]


CAUSES: Final = (StorageError, OSError)
"""What opening a part may raise that makes it away. Anything else is a mistake, or passes by
itself, and stops the start as before."""


def _as_storage_error(error: Exception, directory: PurePath) -> StorageError:
    if isinstance(error, StorageError):
        return error
    assert isinstance(error, OSError), error
    why = (error.strerror or str(error)).lower()
    access_error = AccessError(
        f"the system says {why!r}",
        path=PurePath(error.filename) if isinstance(error.filename, str) else directory,
        advice="check the disk, then start again",
    )
    access_error.__cause__ = error
    return access_error
