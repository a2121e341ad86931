"""A topic as a list of records, each with what became of it. Slow, plain, and easy to believe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.config.topic import Discard, TopicSettings
from headwater.model.match import TagMatcher

LIVE, DELETED, LOST = "live", "deleted", "lost"

Event = tuple[str, int, int, str]
"""What a reader meets: ("record", seq, seq, "") or ("tombstone", from, to, reason)."""


@dataclass
class NaiveRecord:
    seq: int
    ts: int
    payload: int
    tag: bytes | None
    fate: str = LIVE
    reasons: set[str] = field(default_factory=set)


@dataclass
class NaiveTopic:
    settings: TopicSettings
    records: list[NaiveRecord] = field(default_factory=list)

    @property
    def live(self) -> list[NaiveRecord]:
        return [record for record in self.records if record.fate == LIVE]

    @property
    def visible_seq(self) -> int:
        return self.records[-1].seq if self.records else 0

    @property
    def earliest_seq(self) -> int:
        live = self.live
        return live[0].seq if live else self.visible_seq + 1

    @property
    def evict_floor(self) -> int:
        """One more than the last seq in front of the live records that was lost."""
        lost = [record.seq for record in self._front() if record.fate == LOST]
        return max(lost, default=0) + 1

    def _front(self) -> list[NaiveRecord]:
        return [record for record in self.records if record.seq < self.earliest_seq]

    @property
    def bytes(self) -> int:
        return sum(record.payload for record in self.live)

    def evict(self, now_ms: int) -> int:
        """Gives how many went."""
        settings = self.settings
        gone = 0
        while settings.ttl_ms and self.live and self.live[0].ts < now_ms - settings.ttl_ms:
            self._evict_first("ttl")
            gone += 1
        while settings.discard is Discard.OLD and (
            (settings.cap_records and len(self.live) > settings.cap_records)
            or (settings.cap_bytes and self.bytes > settings.cap_bytes)
        ):
            self._evict_first("cap")
            gone += 1
        return gone

    def _evict_first(self, reason: str) -> None:
        record = self.live[0]
        record.fate = LOST
        record.reasons = {reason}

    def delete(
        self, before_seq: int | None, matcher: TagMatcher | None, upto_seq: int
    ) -> list[int]:
        chosen = [
            record
            for record in self.live
            if record.seq <= upto_seq
            and (before_seq is None or record.seq < before_seq)
            and (matcher is None or matcher.matches(record.tag))
        ]
        for record in chosen:
            record.fate = DELETED
        return [record.seq for record in chosen]

    def forget_reasons(self) -> None:
        """A restart keeps which reasons there were, not which was where."""
        lost = [record for record in self._front() if record.fate == LOST]
        if lost:
            lost[-1].reasons = set().union(*(record.reasons for record in lost))

    def events(self, from_seq: int, head_seq: int) -> Iterator[Event]:
        """Everything a reader who starts at this cursor must meet, in order."""
        start = max(from_seq + 1, self.earliest_seq)
        if from_seq > head_seq:
            start = self.earliest_seq
            yield "tombstone", 1, start - 1, "recreated"
        elif from_seq + 1 < self.evict_floor:
            reasons: set[str] = set()
            for record in self._front():
                if record.fate == LOST and record.seq > from_seq:
                    reasons |= record.reasons
            word = reasons.pop() if len(reasons) == 1 else "mixed"
            yield "tombstone", from_seq + 1, self.earliest_seq - 1, word
        run: list[int] = []
        for record in self.records:
            if record.seq < start:
                continue
            if record.fate == LOST:
                run.append(record.seq)
                continue
            if run:
                yield "tombstone", run[0], run[-1], "lost_tail"
                run = []
            if record.fate == LIVE:
                yield "record", record.seq, record.seq, ""
        if run:
            yield "tombstone", run[0], run[-1], "lost_tail"
