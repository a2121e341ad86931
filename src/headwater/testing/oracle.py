"""Remembers what was promised and says what a recovery got wrong.

Items are (stream, seq, content), handed in as submissions that must survive whole or not at all.
The rules are I1 to I3: every ack that covers the crash is kept, survivors are a dense prefix per
stream in submission order, and nothing appears twice, changed, or out of nowhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from headwater.core.durability import Durability

DIFFERENCES_SHOWN_MAX = 20
CONTENT_SHOWN_BYTES = 24


@dataclass(frozen=True, slots=True, order=True)
class Item:
    stream: str
    seq: int
    content: bytes

    def __str__(self) -> str:
        content = repr(self.content[:CONTENT_SHOWN_BYTES])
        more = len(self.content) - CONTENT_SHOWN_BYTES
        return f"{self.stream}/{self.seq} {content}{f' and {more} bytes' if more > 0 else ''}"


class Crash(Enum):
    """What happened before the recovery, and so which acks it must honour."""

    KILL = frozenset({Durability.DISK, Durability.FSYNC})
    POWER_LOSS = frozenset({Durability.FSYNC})

    def covers(self, durability: Durability | None) -> bool:
        return durability in self.value


@dataclass(slots=True)
class SubmittedItems:
    identity: Hashable
    items: tuple[Item, ...]
    submitted_at: int
    acked: Durability | None = None
    acked_at: int = -1
    refused: bool = False


class OracleError(AssertionError):
    """What was recovered is not what was promised."""

    def __init__(self, label: str, differences: Sequence[str]) -> None:
        self.differences = tuple(differences)
        lines = list(differences[:DIFFERENCES_SHOWN_MAX])
        if len(differences) > DIFFERENCES_SHOWN_MAX:
            lines.append(f"and {len(differences) - DIFFERENCES_SHOWN_MAX} more")
        super().__init__("\n  ".join([label or "recovery broke its promise:", *lines]))


class Oracle:
    """Give `at` the position of a disk's trace (`FakeDisk.point`) to check crashes in the past."""

    def __init__(self) -> None:
        self._submissions: dict[Hashable, SubmittedItems] = {}

    def submit(self, identity: Hashable, items: Iterable[Item], *, at: int = 0) -> None:
        """Note a submission before handing it to the log."""
        if identity in self._submissions:
            raise ValueError(f"submission {identity!r} was already submitted")
        self._submissions[identity] = SubmittedItems(identity, tuple(items), at)

    def ack(
        self, identity: Hashable, durability: Durability = Durability.FSYNC, *, at: int = 0
    ) -> None:
        """Note that the log acknowledged a submission, and with which promise."""
        submission = self._submissions[identity]
        if submission.acked is not None:
            raise OracleError("", [f"submission {identity!r} was acknowledged twice"])
        if submission.refused:
            raise OracleError("", [f"submission {identity!r} was refused and then acknowledged"])
        submission.acked = durability
        submission.acked_at = at

    def refuse(self, identity: Hashable) -> None:
        """Note a refusal that promises that nothing was kept (not a failure in the middle)."""
        submission = self._submissions[identity]
        if submission.acked is not None:
            raise OracleError("", [f"submission {identity!r} was acknowledged and then refused"])
        submission.refused = True

    def acked_count(self, crash: Crash = Crash.POWER_LOSS, at: int | None = None) -> int:
        """How many submissions a recovery from this crash must bring back."""
        return sum(self._must_survive(each, crash, at) for each in self._submissions.values())

    def check(
        self,
        recovered: Iterable[Item],
        *,
        crash: Crash = Crash.POWER_LOSS,
        at: int | None = None,
        floors: Mapping[str, int] | None = None,
        label: str = "",
    ) -> None:
        """Raise OracleError with every difference when the recovery broke a promise."""
        differences = self.differences(recovered, crash=crash, at=at, floors=floors)
        if differences:
            raise OracleError(label, differences)

    def differences(
        self,
        recovered: Iterable[Item],
        *,
        crash: Crash = Crash.POWER_LOSS,
        at: int | None = None,
        floors: Mapping[str, int] | None = None,
    ) -> list[str]:
        """What is wrong with the recovered items, in words.

        `at` is the crash point, None for the end of everything; `floors` names the first seq of
        streams that were trimmed on purpose.
        """
        items = list(recovered)
        floors = floors or {}
        known = [
            each for each in self._submissions.values() if at is None or each.submitted_at <= at
        ]
        differences = _order_differences(items)
        differences += _origin_differences(items, known)
        present = set(items)
        for submission in known:
            kept = [item for item in submission.items if item.seq >= floors.get(item.stream, 0)]
            lost = [item for item in kept if item not in present]
            if lost and self._must_survive(submission, crash, at):
                differences += [
                    f"lost {item} of submission {submission.identity!r}, "
                    f"acked as {submission.acked.value if submission.acked else '?'}"
                    for item in lost
                ]
            elif lost and len(lost) < len(kept):
                differences.append(
                    f"submission {submission.identity!r} is not whole: "
                    f"{len(kept) - len(lost)} of {len(kept)} items, without {lost[0]}"
                )
        return differences + _prefix_differences(present, known, floors)

    @staticmethod
    def _must_survive(submission: SubmittedItems, crash: Crash, at: int | None) -> bool:
        in_time = at is None or submission.acked_at <= at
        return in_time and crash.covers(submission.acked)


def _order_differences(items: Sequence[Item]) -> list[str]:
    """Each stream comes in order, without a gap and without a repeat."""
    differences: list[str] = []
    last: dict[str, int] = {}
    for item in items:
        before = last.get(item.stream)
        if before is not None and item.seq != before + 1:
            what = "repeated or out of order" if item.seq <= before else "a gap"
            differences.append(f"{what}: {item} came after {item.stream}/{before}")
        last[item.stream] = item.seq if before is None else max(before, item.seq)
    return differences


def _origin_differences(items: Sequence[Item], known: Sequence[SubmittedItems]) -> list[str]:
    """Every item was submitted, with these very bytes, and not refused."""
    allowed = {item for each in known if not each.refused for item in each.items}
    refused = {item for each in known if each.refused for item in each.items}
    by_seq = {(item.stream, item.seq): item for item in allowed}
    differences: list[str] = []
    for item in items:
        if item in allowed:
            continue
        meant = by_seq.get((item.stream, item.seq))
        if item in refused:
            differences.append(f"refused, and yet there: {item}")
        elif meant is not None:
            differences.append(f"changed: {item}, submitted as {meant}")
        else:
            differences.append(f"never submitted: {item}")
    return differences


def _prefix_differences(
    present: set[Item], known: Sequence[SubmittedItems], floors: Mapping[str, int]
) -> list[str]:
    """What survives of a stream is what was submitted first (I2)."""
    differences: list[str] = []
    first_lost: dict[str, Item] = {}
    for submission in known:
        if submission.refused:
            continue
        for item in submission.items:
            if item.seq < floors.get(item.stream, 0):
                continue
            if item not in present:
                first_lost.setdefault(item.stream, item)
            elif item.stream in first_lost:
                differences.append(
                    f"not a prefix: {item} survived, {first_lost[item.stream]} "
                    "submitted before it did not"
                )
    return differences
