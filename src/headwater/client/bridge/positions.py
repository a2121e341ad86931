"""The topic of positions: the last statement, the next one, and whose turn it is.

Keeps: of two bridges with one name the one that started later goes on. It writes a statement before
it counts, and the other checks for that before each of its copies and statements.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headwater.client.bridge.clusters import AwayError
from headwater.client.bridge.records import read_range
from headwater.client.bridge.statement import (
    BridgeStoppedError,
    CopyPosition,
    Statement,
    decode_statement,
    encode_statement,
)
from headwater.core.units import US_PER_S

if TYPE_CHECKING:
    from headwater.client.bridge.clusters import ClusterReader, ClusterWriter
    from headwater.client.bridge.settings import BridgeSettings
    from headwater.core.clock import Clock

KEPT_STATEMENTS: Final = 1_000
CHECK_TIMEOUT_S: Final = 2.0
"""How long the destination may take to answer whether there are other statements."""
GONE_US = 60 * US_PER_S
"""The topic is gone when the destination knew nothing of it, or less than was acked, for so long.
A broker that comes back does not know everything at once."""
FLUSH_S: Final = 10.0
CopyPositions = dict[str, dict[str, CopyPosition]]


class Positions:
    def __init__(
        self, settings: BridgeSettings, dest: ClusterReader, writer: ClusterWriter, clock: Clock
    ) -> None:
        self._settings = settings
        self._topic = settings.positions
        self._dest = dest
        self._writer = writer
        self._owner = secrets.token_hex(8)
        self._next = 0
        """Where the next statement goes, if no other bridge writes one."""
        self._under_way = 0
        self._statements = 0
        self._clock = clock
        self._missed_us: int | None = None
        self.failure: BridgeStoppedError | None = None

    # -- reading statements

    def last(self) -> Statement | None:
        marks = self._dest.watermarks(self._topic, 0)
        self._next = marks.high
        if not marks.high:
            return None
        if marks.high <= marks.low:
            raise BridgeStoppedError(
                f"{self._settings.dest}: the statements in {self._topic} were deleted, so it is "
                "unknown what was copied. Copy under another --name, to new topics"
            )
        found = self._read(marks.high - 1, marks.high)
        if not found:
            raise AwayError(f"{self._settings.dest} does not give the last record of {self._topic}")
        return found[-1]

    def _read(self, first: int, end: int) -> list[Statement]:
        return [
            decode_statement(each.value() or b"", f"topic {self._topic!r}")
            for each in read_range(self._settings.dest, self._topic, 0, first, end)
        ]

    def take_over(self, wait_until_quiet: Callable[[], None]) -> Statement | None:
        """What to go on from, after every other bridge of this name has been made to stop.

        `settle` waits until what others had under way has landed.
        """
        before = self.last()
        expected, at = self._next, list[int]()

        def stated(error: Any, message: Any) -> None:
            if error is not None:
                self._refuse(error)
            else:
                at.append(int(message.offset() or 0))

        said = Statement("", {}) if before is None else before
        self._send(said.positions, said.ids, False, stated)
        self.flush()
        self._next = at[0] + 1
        is_alone = at[0] == expected
        if is_alone and (before is None or before.is_clean):
            return before
        wait_until_quiet()
        older = {self._owner, *self._owners(max(expected - 1, 0), at[0])}
        last = self.last()
        if self._owners(at[0], self._next) - older:
            raise self._taken_over()
        return last

    def _owners(self, first: int, end: int) -> set[str]:
        return {each.owner for each in self._read(first, end)}

    # -- writing statements

    def state(
        self, positions: CopyPositions, ids: dict[str, str], *, is_clean: bool = False
    ) -> bool:
        """False where there is no room for it now."""
        if not self._send(positions, ids, is_clean, self._stated):
            return False
        self._under_way += 1
        self._statements += 1
        return True

    def flush(self) -> None:
        if self._writer.finish(FLUSH_S):
            raise AwayError(f"{self._settings.dest} does not take the bridge's position")
        if self.failure is not None:
            raise self.failure

    def _send(
        self, positions: CopyPositions, ids: dict[str, str], is_clean: bool, delivered: Any
    ) -> bool:
        said = Statement(
            str(self._settings.source), positions, is_clean, owner=self._owner, ids=ids
        )
        return self._writer.send(self._topic, 0, None, encode_statement(said), delivered)

    def _stated(self, error: Any, message: Any) -> None:
        self._under_way -= 1
        if error is not None:
            self._refuse(error)
            return
        offset, wanted = int(message.offset() or 0), self._next
        self._next += 1
        if offset != wanted:
            self.failure = BridgeStoppedError(
                f"the position went to offset {offset} of {self._topic} instead of "
                f"{wanted}; another bridge has the same --name, and each needs its own"
            )
        elif self._statements % KEPT_STATEMENTS == 0:
            self._writer.forget_before(self._topic, 0, offset)

    def _refuse(self, error: Any) -> None:
        self.failure = BridgeStoppedError(f"the position cannot be written: {error.str()}")

    # -- checking for another bridge

    def check(self) -> None:
        """Raises where another bridge wrote a statement since. AwayError where that is unclear."""
        end = self._dest.ends([(self._topic, 0)], CHECK_TIMEOUT_S).get((self._topic, 0))
        if end is None or end < self._next:
            self._miss()
            raise AwayError(f"{self._settings.dest} does not say where {self._topic} ends")
        self._missed_us = None
        if end > self._next + self._under_way:
            raise self._taken_over()

    def _miss(self) -> None:
        now = self._clock.monotonic_us()
        if self._missed_us is None:
            self._missed_us = now
        if now - self._missed_us >= GONE_US:
            raise BridgeStoppedError(
                f"{self._settings.dest}: {self._topic} was dropped while the bridge ran"
            )

    def _taken_over(self) -> BridgeStoppedError:
        return BridgeStoppedError(
            f"another bridge with --name {self._settings.name} started after this one and goes on "
            f"in its place ({self._topic} says so); each needs its own"
        )
