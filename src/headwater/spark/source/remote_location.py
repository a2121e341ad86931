"""A running server as a location to read from: pages of Arrow over HTTP, by any number of tasks.

The server knows everything, so nothing has to be looked up twice: a page says what was lost
before it and where to go on. Imports the client when it is used, not before: those who read files
need none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow
import pyarrow.ipc

from headwater.core.errors import TopicNotFoundError
from headwater.spark.source.filters import Filters
from headwater.spark.source.location import (
    DROPPED,
    RECREATED,
    LocationSnapshot,
    LostSeqs,
    ReadContext,
    RemoteSlice,
    TopicFacts,
)
from headwater.wire.frame_rows import Column, Integers, Mask, RecordColumns

if TYPE_CHECKING:
    from headwater.client import Client, TopicState

T = TypeVar("T")

TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """A batch as the server sends it."""

    batch: Any

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def seqs(self) -> Integers:
        seqs: Integers = self.batch.column("seq").to_numpy()
        return seqs

    @property
    def ts_us(self) -> Integers:
        ts_us: Integers = self.batch.column("ts").cast(pyarrow.int64()).to_numpy() * 1_000
        return ts_us

    def text(self, name: str) -> Column:
        return self.batch.column(name)

    def binary(self, name: str) -> Column:
        return self.batch.column(name).cast(pyarrow.binary())

    def kept(self, mask: Mask) -> ArrowRows:
        return ArrowRows(self.batch.filter(pyarrow.array(mask)))


@dataclass(slots=True)
class RemoteSnapshot(LocationSnapshot):
    client: Client
    rows_max: int
    bytes_max: int
    prefix: str = ""
    """Of the names to list."""
    _states: dict[str, TopicState] = field(default_factory=dict)

    def names(self) -> list[str]:
        self._states = {state.topic: state for state in self.client.topics(self.prefix)}
        return sorted(self._states)

    def facts(self, name: str) -> TopicFacts | None:
        state = self._states.get(name)
        if state is None:
            try:
                state = self._states[name] = self.client.state(name)
            except TopicNotFoundError:
                return None
        return TopicFacts(
            name,
            state.epoch,
            state.earliest_seq,
            state.head_seq,
            state.evict_floor,
        )

    def slices(
        self, facts: TopicFacts, first_seq: int, last_seq: int, filters: Filters
    ) -> list[RemoteSlice]:
        low = max(first_seq, facts.first_seq, filters.seq.low)
        high = min(last_seq, facts.head_seq, filters.seq.high)
        state = self._states[facts.topic]
        each = max(state.bytes // max(state.count, 1), 1)
        most = max(min(self.rows_max, self.bytes_max // each), 1)
        count = max(high - low + 1, 1)
        step = -(-count // -(-count // most))  # as few as may be, and all about as long
        return [
            RemoteSlice(facts.topic, facts.epoch, at, min(at + step - 1, high), each * step)
            for at in range(low, high + 1, step)
            if filters.seq.meets(at, min(at + step - 1, high))
        ]

    def gap(self, facts: TopicFacts, cursor: int) -> LostSeqs | None:
        if facts.gap_after(cursor) is None:
            return None
        lost = self.client.diff(facts.topic, cursor, limit=1).tombstone
        if lost is None:
            return None
        return LostSeqs(lost.gap_from, lost.gap_to, lost.reason, lost.missed_estimate)

    def seq_at(self, facts: TopicFacts, ts_us: int, *, tolerant: bool = False) -> int:
        """By halves: the times of a topic do not go back."""
        low, high = facts.first_seq, facts.head_seq + 1
        while low < high:
            middle = (low + high) // 2
            diff = self.client.diff(facts.topic, middle - 1, limit=1)
            if not diff.records:
                high = middle  # everything from here on is gone
            elif diff.records[0].ts * 1_000 < ts_us:
                low = diff.records[0].seq + 1
            else:
                high = middle
        return low


@dataclass(frozen=True, slots=True)
class RemoteLocation:
    url: str
    token: str | None = field(repr=False)
    rows_max: int
    bytes_max: int
    prefix: str = ""
    """What names must begin with to be listed: a server lists partitions by theirs only."""

    def _client(self) -> Client:
        from headwater.client import Client

        return Client(self.url, token=self.token, timeout_s=TIMEOUT_S)

    def now(self, work: Callable[[RemoteSnapshot], T]) -> T:
        with self._client() as client:
            return work(RemoteSnapshot(client, self.rows_max, self.bytes_max, self.prefix))

    def read(
        self, slices: list[RemoteSlice], context: ReadContext
    ) -> Iterator[tuple[str, RecordColumns | LostSeqs]]:
        with self._client() as client:
            for each in slices:
                for rows in self._read_slice(client, each, context):
                    yield each.topic, rows

    def _read_slice(
        self, client: Client, wanted: RemoteSlice, context: ReadContext
    ) -> Iterator[RecordColumns | LostSeqs]:
        cursor = wanted.first_seq - 1
        while cursor < wanted.last_seq:
            try:
                page = client.arrow(
                    wanted.topic, cursor, to_seq=wanted.last_seq, limit=context.batch_rows_max
                )
            except TopicNotFoundError:
                yield LostSeqs(cursor + 1, wanted.last_seq, DROPPED)
                return
            if page.epoch != wanted.epoch:
                yield LostSeqs(cursor + 1, wanted.last_seq, RECREATED)
                return
            if page.tombstone is not None and page.tombstone.gap_from <= wanted.last_seq:
                lost = page.tombstone
                gap_to = min(lost.gap_to, wanted.last_seq)
                missed = min(lost.missed_estimate, gap_to - lost.gap_from + 1)
                yield LostSeqs(lost.gap_from, gap_to, lost.reason, missed)
            for batch in pyarrow.ipc.open_stream(page.stream):
                if batch.num_rows:
                    yield ArrowRows(batch)
            if page.caught_up or page.next_from_seq <= cursor:
                return
            cursor = page.next_from_seq
