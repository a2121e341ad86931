"""What the server answered about one topic, and whether that agrees with what is read from it.

Every record's data names the write it belongs to, so a record is known wherever it turns up. The
rules, by promise:

- I1 an acked record is at the seq it was acked with, with the same data and tag
- I2 an unknown write is there whole or not at all, at neighbouring seqs; what one writer sent is
  in the order it was sent
- I3 the head never goes back, and no seq is acked for two records
- I8 what a delete that was answered covers is gone; what was seen to be gone stays away
- I9 what a cap or an age took lies below the floor, and the tombstone says exactly that
- nothing appears twice, changed, or out of nowhere; what was refused is nowhere
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.testing.torture.outcome import End, RunOutcome

SHOWN_MAX = 10
Key = tuple[str, int]
"""The identity of a write, and which of its records."""
INVOLUNTARY = frozenset(("cap", "ttl", "mixed"))


@dataclass(slots=True)
class LedgerWrite:
    identity: str
    tags: tuple[str | None, ...]
    """Of its records, in order."""
    writer: str
    turn: int
    """Which write of this writer it is."""
    sent_at: float
    node: str | None = None
    outcome: RunOutcome = RunOutcome.PENDING
    first_seq: int = 0
    answered_at: float = float("inf")
    is_ordered: bool = True
    """False for one whose answer never came while the server lived on: it may be applied later."""
    idempotency_key: str | None = None

    @property
    def count(self) -> int:
        return len(self.tags)

    @property
    def seqs(self) -> range:
        return range(self.first_seq, self.first_seq + self.count)


@dataclass(slots=True)
class Delete:
    before_seq: int | None
    tag: str | None
    sent_at: float
    outcome: RunOutcome = RunOutcome.PENDING
    answered_at: float = float("inf")

    def meets(self, seq: int, tag: str | None) -> bool:
        return (self.before_seq is None or seq < self.before_seq) and (
            self.tag is None or tag == self.tag
        )


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as it was read."""

    seq: int
    data: Mapping[str, Any]
    tag: str | None = None
    node: str | None = None

    @property
    def key(self) -> Key:
        return str(self.data.get("w")), int(self.data.get("k", -1))


@dataclass(frozen=True, slots=True)
class SeenGap:
    """A tombstone."""

    gap_from: int
    gap_to: int
    reason: str


@dataclass(slots=True)
class TopicReading:
    """Everything a topic shows from its beginning to its end, while no client writes."""

    records: list[Stored] = field(default_factory=list)
    gaps: list[SeenGap] = field(default_factory=list)
    head_seq: int = 0
    earliest_seq: int = 1
    at: float = 0.0


@dataclass(slots=True)
class Followed:
    """A stretch that a reader went over while others wrote."""

    from_seq: int
    to_seq: int
    records: list[Stored]
    gaps: list[SeenGap]
    at: float


def record_data(identity: str, index: int, padding: int = 0) -> dict[str, Any]:
    return {"w": identity, "k": index, "pad": "x" * padding}


class TopicLedger:
    def __init__(
        self, name: str, durability: str = "fsync", cap_records: int = 0, ttl_ms: int = 0
    ) -> None:
        self.name = name
        self.durability = durability
        self.cap_records = cap_records
        self.ttl_ms = ttl_ms
        self.writes: dict[str, LedgerWrite] = {}
        self.deletes: list[Delete] = []
        self.head_max = 0
        self.earliest_max = 1
        self._head_checked = 0
        self._acked_seqs: dict[int, str] = {}
        self._of_tag: dict[str | None, list[int]] = {}
        """Heaps of the seqs that were acked for records of a tag."""
        self._removed: dict[int, tuple[RunOutcome, float]] = {}
        """Single seqs that a client meant to take away, by ack or as a dead letter, and when that
        was answered."""
        self._removals_sent: Counter[int] = Counter()
        """How many requested that and were not refused: a late ack stands beside a good one."""
        self._gone: set[int] = set()
        """Seqs that a check did not find, at or below the head of that check."""
        self._followed: list[Followed] = []
        self._wrong_acks: list[str] = []
        """What was wrong with answers themselves."""
        self._lock = threading.Lock()

    # -- what clients say

    def send(self, write: LedgerWrite) -> None:
        with self._lock:
            self.writes[write.identity] = write

    def ack(self, identity: str, first_seq: int, last_seq: int, at: float) -> None:
        with self._lock:
            write = self.writes[identity]
            if last_seq - first_seq + 1 != write.count:
                self._wrong_acks.append(
                    f"I2: {identity} of {write.count} acked {first_seq}..{last_seq}"
                )
            if write.outcome is RunOutcome.ABSENT:
                self._wrong_acks.append(
                    f"I2: {identity} was not there after a start and acked later"
                )
            write.outcome, write.first_seq, write.answered_at = RunOutcome.ACKED, first_seq, at
            for seq, tag in zip(write.seqs, write.tags, strict=False):
                heapq.heappush(self._of_tag.setdefault(tag, []), seq)
                other = self._acked_seqs.setdefault(seq, identity)
                if other != identity:
                    self._wrong_acks.append(f"I3: seq {seq} acked for {other} and for {identity}")

    def resend(self, identity: str) -> None:
        """The same write again, under its idempotency key."""
        with self._lock:
            write = self.writes[identity]
            write.outcome, write.is_ordered = RunOutcome.PENDING, False

    def refuse(self, identity: str) -> None:
        with self._lock:
            self.writes[identity].outcome = RunOutcome.REFUSED

    def lose(self, identity: str, *, is_ordered: bool = True) -> None:
        """No answer came."""
        with self._lock:
            write = self.writes[identity]
            write.outcome, write.is_ordered = RunOutcome.UNKNOWN, is_ordered

    def note_head(self, head_seq: int) -> None:
        with self._lock:
            self.head_max = max(self.head_max, head_seq)

    def send_delete(self, before_seq: int | None, tag: str | None, at: float) -> Delete:
        delete = Delete(before_seq, tag, at)
        with self._lock:
            self.deletes.append(delete)
        return delete

    def resolve_delete(self, delete: Delete, outcome: RunOutcome, at: float) -> None:
        with self._lock:
            delete.outcome, delete.answered_at = outcome, at

    def remove(self, seq: int, outcome: RunOutcome, at: float) -> None:
        """One record is to go. PENDING before the request is sent; what was acked stays acked."""
        with self._lock:
            if outcome is RunOutcome.PENDING:
                self._removals_sent[seq] += 1
            if self._removed.get(seq, (RunOutcome.PENDING, at))[0] is not RunOutcome.ACKED:
                self._removed[seq] = (outcome, at)

    def keep(self, seq: int) -> None:
        """One who sent a removal was refused: the record stays, unless another client's is still
        on its way."""
        with self._lock:
            self._removals_sent[seq] -= 1
            is_pending = self._removed.get(seq, (RunOutcome.ACKED, 0.0))[0] is RunOutcome.PENDING
            if is_pending and self._removals_sent[seq] <= 0:
                del self._removed[seq]

    def removal(self, seq: int) -> tuple[RunOutcome, float] | None:
        with self._lock:
            return self._removed.get(seq)

    def first_of_tag(self, tag: str | None) -> int | None:
        """The lowest seq that was acked for a record of this tag and no client meant to remove."""
        with self._lock:
            waiting = self._of_tag.get(tag)
            while waiting and waiting[0] in self._removed:
                heapq.heappop(waiting)
            return waiting[0] if waiting else None

    def follow(self, followed: Followed) -> None:
        with self._lock:
            self._followed.append(followed)

    def unknown_with_keys(self) -> list[LedgerWrite]:
        """Writes that may be sent again without being written twice."""
        with self._lock:
            return [
                each
                for each in self.writes.values()
                if each.outcome in (RunOutcome.UNKNOWN, RunOutcome.ABSENT) and each.idempotency_key
            ]

    def acked_count(self) -> int:
        with self._lock:
            return sum(each.outcome is RunOutcome.ACKED for each in self.writes.values())

    def missing_from(self, reading: TopicReading, before: float) -> list[str]:
        """What was acked before that moment and a copy does not have, or has otherwise."""
        present = {record.seq: record for record in reading.records}
        wrong = []
        with self._lock:
            if self.durability == "memory":
                return []
            for write in self.writes.values():
                if write.outcome is not RunOutcome.ACKED or write.answered_at >= before:
                    continue
                for index, (seq, tag) in enumerate(zip(write.seqs, write.tags, strict=True)):
                    record = present.get(seq)
                    if record is not None and record.key == (write.identity, index):
                        continue
                    if record is None and (
                        seq in self._gone
                        or self._may_be_deleted(write, seq, tag)
                        or self._may_be_evicted(seq, reading)
                    ):
                        continue
                    wrong.append(f"{self.name}: {write.identity} at {seq} is {record}")
        return shortened(wrong)

    # -- what a loss of power undoes

    def lose_power(self, since: float, disk_since: float) -> None:
        """Answers from `since` on promise nothing; those of the disk class from `disk_since`."""
        with self._lock:
            weak = disk_since if self.durability != "fsync" else since
            for write in self.writes.values():
                if write.outcome is RunOutcome.ACKED and write.answered_at >= weak:
                    write.outcome = RunOutcome.UNKNOWN
                    for seq in write.seqs:
                        self._acked_seqs.pop(seq, None)
            for delete in self.deletes:
                if delete.outcome is RunOutcome.ACKED and delete.answered_at >= since:
                    delete.outcome = RunOutcome.UNKNOWN
            for seq, (outcome, at) in self._removed.items():
                if outcome is RunOutcome.ACKED and at >= since:
                    self._removed[seq] = (RunOutcome.UNKNOWN, at)
            self._followed = [each for each in self._followed if each.at < weak]
            self.head_max = max(
                (
                    each.seqs[-1]
                    for each in self.writes.values()
                    if each.outcome is RunOutcome.ACKED
                ),
                default=0,
            )
            self.head_max = max(self.head_max, self._head_checked)

    # -- the check

    def check(self, reading: TopicReading, end: End = End.KILL) -> list[str]:
        """What is wrong, in words. Unknown writes are settled by what is there."""
        with self._lock:
            wrong, self._wrong_acks = self._wrong_acks, []
            present = self._check_records(reading, wrong)
            self._check_writes(reading, present, wrong, end)
            self._check_order(present, wrong)
            self._check_marks(reading, wrong)
            self._check_followed(reading, present, wrong)
            self._gone.update(seq for seq in range(1, reading.head_seq + 1) if seq not in present)
            self._head_checked = reading.head_seq
            self.head_max = max(self.head_max, reading.head_seq)
            self.earliest_max = max(self.earliest_max, reading.earliest_seq)
            self._followed = []
            self._of_tag = {}
            for seq, record in present.items():  # in order, so each list is a heap
                self._of_tag.setdefault(record.tag, []).append(seq)
        return shortened(wrong)

    def _check_records(self, reading: TopicReading, wrong: list[str]) -> dict[int, Stored]:
        present: dict[int, Stored] = {}
        seen: dict[Key, int] = {}
        last = 0
        for record in reading.records:
            if record.seq <= last:
                wrong.append(f"order: seq {record.seq} came after {last}")
            last = max(last, record.seq)
            present[record.seq] = record
            wrong += self._origin(record)
            before = seen.setdefault(record.key, record.seq)
            if before != record.seq:
                wrong.append(f"I2: {record.key} is at {before} and again at {record.seq}")
            if record.seq in self._gone:
                wrong.append(f"I8: seq {record.seq} {record.key} came back")
        return present

    def _origin(self, record: Stored) -> list[str]:
        identity, index = record.key
        write = self.writes.get(identity)
        if write is None or not 0 <= index < write.count:
            return [f"I1: seq {record.seq} has {dict(record.data)}, which no client wrote"]
        wrong = []
        if write.outcome is RunOutcome.REFUSED:
            wrong.append(f"I2: {record.key} was refused and is at {record.seq}")
        if record.tag != write.tags[index]:
            wrong.append(f"I1: {record.key} has tag {record.tag!r}, not {write.tags[index]!r}")
        if record.node != write.node:
            wrong.append(f"I1: {record.key} has node {record.node!r}, not {write.node!r}")
        if write.outcome is RunOutcome.ACKED and record.seq != write.first_seq + index:
            wrong.append(
                f"I1: {record.key} was acked at {write.first_seq + index} and is at {record.seq}"
            )
        return wrong

    def _check_writes(
        self, reading: TopicReading, present: dict[int, Stored], wrong: list[str], end: End
    ) -> None:
        seq_of = {record.key: seq for seq, record in present.items()}
        for write in self.writes.values():
            match write.outcome:
                case RunOutcome.ACKED:
                    self._check_acked(write, reading, present, wrong, end)
                case RunOutcome.UNKNOWN | RunOutcome.PENDING | RunOutcome.ABSENT:
                    self._resolve(write, reading, seq_of, wrong)
                case RunOutcome.REFUSED:
                    continue

    def _check_acked(
        self,
        write: LedgerWrite,
        reading: TopicReading,
        present: dict[int, Stored],
        wrong: list[str],
        end: End,
    ) -> None:
        for seq, tag in zip(write.seqs, write.tags, strict=True):
            record = present.get(seq)
            if record is not None and record.key[0] == write.identity:
                if self._is_surely_deleted(write, seq, tag):
                    wrong.append(f"I8: {record.key} at {seq} was deleted and is there")
                continue
            if seq in self._gone or self._may_be_deleted(write, seq, tag):
                continue
            if self._may_be_evicted(seq, reading) or self.durability == "memory":
                continue
            shown = "nothing" if record is None else f"{record.key}"
            wrong.append(
                f"I1: {write.identity} was acked at {seq} ({self.durability}); after {end.value} "
                f"there is {shown} (head {reading.head_seq}, earliest {reading.earliest_seq})"
            )

    def _resolve(
        self, write: LedgerWrite, reading: TopicReading, seq_of: dict[Key, int], wrong: list[str]
    ) -> None:
        """What was in doubt is known now."""
        seqs = [seq_of.get((write.identity, index)) for index in range(write.count)]
        present_seqs = [(index, seq) for index, seq in enumerate(seqs) if seq is not None]
        if not present_seqs:
            # With a place that cannot be known, any delete may have met it.
            write.outcome = RunOutcome.ABSENT
            return
        if write.outcome is RunOutcome.ABSENT:
            wrong.append(f"I2: {write.identity} was not there after a start and is now")
        index, seq = present_seqs[0]
        write.first_seq = seq - index
        write.outcome, write.answered_at = RunOutcome.ACKED, reading.at
        for index, expected in enumerate(write.seqs):
            if seqs[index] == expected:
                self._acked_seqs[expected] = write.identity
            elif seqs[index] is not None:
                wrong.append(f"I2: {write.identity} is scattered: {seqs}")
            elif not (
                self._may_be_deleted(write, expected, write.tags[index])
                or self._may_be_evicted(expected, reading)
            ):
                wrong.append(f"I2: {write.identity} is not whole: {seqs}")

    def _check_order(self, present: dict[int, Stored], wrong: list[str]) -> None:
        last: dict[str, tuple[int, Key]] = {}
        for _, record in sorted(present.items()):
            write = self.writes.get(record.key[0])
            if write is None or not write.is_ordered:
                continue
            turn, before = last.get(write.writer, (-1, record.key))
            if (write.turn, record.key[1]) < (turn, before[1]):
                wrong.append(f"I2: {record.key} at {record.seq} comes after {before}")
            last[write.writer] = (write.turn, record.key)

    def _check_marks(self, reading: TopicReading, wrong: list[str]) -> None:
        if reading.head_seq < self.head_max and self.durability not in ("memory", "ephemeral"):
            wrong.append(f"I3: the head is {reading.head_seq}, it was {self.head_max}")
        if reading.earliest_seq < self.earliest_max:
            wrong.append(f"I10: earliest is {reading.earliest_seq}, it was {self.earliest_max}")
        if not 1 <= reading.earliest_seq <= reading.head_seq + 1:
            wrong.append(f"I10: earliest {reading.earliest_seq}, head {reading.head_seq}")
        if self.cap_records and not self.deletes:
            floor = max(reading.head_seq - self.cap_records + 1, 1)
            if reading.earliest_seq > floor and self.durability == "fsync" and not self.ttl_ms:
                wrong.append(f"I9: earliest is {reading.earliest_seq}, the cap allows {floor}")
        if self.cap_records and len(reading.records) > self.cap_records:
            wrong.append(f"I9: {len(reading.records)} records, the cap is {self.cap_records}")
        for gap in reading.gaps:
            wrong += self._gap_findings(gap, reading)

    def _gap_findings(self, gap: SeenGap, reading: TopicReading) -> list[str]:
        if gap.reason in INVOLUNTARY:
            if not (self.cap_records or self.ttl_ms):
                return [f"I9: {gap} in a topic without limits"]
            if gap.gap_from == 1 and gap.gap_to != reading.earliest_seq - 1 and not self.deletes:
                return [f"I9: {gap}, and earliest is {reading.earliest_seq}"]
            return []
        if gap.reason == "lost_tail" and self.durability != "fsync":
            return []
        return [f"I6: {gap} in a topic of the {self.durability} class"]

    def _check_followed(
        self, reading: TopicReading, present: dict[int, Stored], wrong: list[str]
    ) -> None:
        """What a reader saw is there, and what was there was seen."""
        acked = {
            seq: write
            for write in self.writes.values()
            if write.outcome is RunOutcome.ACKED
            for seq in write.seqs
        }
        for followed in self._followed:
            seen = {}
            last = followed.from_seq
            for record in followed.records:
                if record.seq <= last:
                    wrong.append(f"order: a reader got {record.seq} after {last}")
                last = record.seq
                seen[record.seq] = record
                wrong += self._reader_findings(record, reading, present)
            for seq in range(followed.from_seq + 1, followed.to_seq + 1):
                write = acked.get(seq)
                if write is None or seq in seen or seq in self._gone:
                    continue
                if any(gap.gap_from <= seq <= gap.gap_to for gap in followed.gaps):
                    continue
                if not self._may_be_deleted(write, seq, write.tags[seq - write.first_seq]):
                    wrong.append(
                        f"I6: a reader went from {followed.from_seq} to {followed.to_seq} "
                        f"without {seq}, which {write.identity} has"
                    )

    def _reader_findings(
        self, record: Stored, reading: TopicReading, present: dict[int, Stored]
    ) -> list[str]:
        wrong = self._origin(record)
        now = present.get(record.seq)
        if now is not None:
            if now.key != record.key:
                wrong.append(f"I3: a reader saw {record.key} at {record.seq}, now it is {now.key}")
            return wrong
        write = self.writes.get(record.key[0])
        if (
            write is not None
            and record.seq not in self._gone
            and self.durability != "memory"
            and not self._may_be_evicted(record.seq, reading)
            and not self._may_be_deleted(write, record.seq, record.tag)
        ):
            wrong.append(f"I1: a reader saw {record.key} at {record.seq}, which is gone now")
        return wrong

    def _may_be_evicted(self, seq: int, reading: TopicReading) -> bool:
        return bool(self.cap_records or self.ttl_ms) and seq < reading.earliest_seq

    def _is_surely_deleted(self, write: LedgerWrite, seq: int, tag: str | None) -> bool:
        removed = self._removed.get(seq)
        if removed is not None and removed[0] is RunOutcome.ACKED:
            return True
        return any(
            each.outcome is RunOutcome.ACKED
            and each.meets(seq, tag)
            and (each.before_seq is not None or write.answered_at < each.sent_at)
            for each in self.deletes
        )

    def _may_be_deleted(self, write: LedgerWrite, seq: int, tag: str | None) -> bool:
        if seq in self._removed:
            return True
        return any(
            each.outcome is not RunOutcome.REFUSED
            and each.meets(seq, tag)
            and write.sent_at <= each.answered_at
            for each in self.deletes
        )


def shortened(wrong: Sequence[str]) -> list[str]:
    """A topic that is broken is broken in a thousand places."""
    if len(wrong) <= SHOWN_MAX:
        return list(wrong)
    return [*wrong[:SHOWN_MAX], f"and {len(wrong) - SHOWN_MAX} more"]
