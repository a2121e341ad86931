"""Idempotent producers: the rules about sequence numbers. No clock, no I/O.

The newest five batches of a producer are remembered for each partition, as in Kafka. One that comes
again gets the answer it had; one that leaves a gap is refused; an older epoch is fenced. A producer
nobody knows may begin with any sequence, because it may have been forgotten; but not behind a batch
that was just refused, or what it sends next would stand before what it sends again.
"""

from __future__ import annotations

from typing import Any, Final

from headwater.engine.kafka.errors import KafkaError
from headwater.format.kafka.batch import BatchHeader
from headwater.format.kafka.checkpoint import ProducerMeta
from headwater.wire.kafka.error_codes import ErrorCode

BATCHES_MAX: Final = 5
_SEQUENCE_MASK: Final = 0x7FFFFFFF
"""Sequences begin again at 0 after the largest one."""


class SentBatch:
    """A batch that was taken. `pending` is the write while it is under way."""

    __slots__ = ("base_offset", "first", "last", "pending")

    def __init__(self, first: int, last: int, base_offset: int, pending: Any = None) -> None:
        self.first = first
        self.last = last
        self.base_offset = base_offset
        self.pending = pending


class _Producer:
    __slots__ = ("awaited", "batches", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[SentBatch] = []
        self.awaited: int | None = None
        """The sequence of the first batch that was refused since the last one that was taken."""

    @property
    def expected(self) -> int | None:
        """The sequence that comes next; None when any may."""
        if self.batches:
            return (self.batches[-1].last + 1) & _SEQUENCE_MASK
        return self.awaited


class Producers:
    """The producers of one partition."""

    __slots__ = ("_producers_max", "_states")

    def __init__(self, producers_max: int) -> None:
        self._producers_max = producers_max
        self._states: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._states)

    def check(self, header: BatchHeader) -> SentBatch | None:
        """None when the batch is the next one; what was kept of it when it came before."""
        state = self._states.get(header.producer_id)
        if state is None:
            return None
        first = header.base_sequence
        if header.producer_epoch < state.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {state.epoch} by now; "
                f"{header.producer_epoch} is from an earlier life",
            )
        if header.producer_epoch > state.epoch:
            if first != 0:
                raise _out_of_order(header, 0)
            return None
        last = _last_sequence(header)
        for batch in state.batches:
            if batch.first == first and batch.last == last:
                return batch
        expected = state.expected
        if expected is not None and first != expected:
            raise _out_of_order(header, expected)
        return None

    def take(self, header: BatchHeader, base_offset: int, pending: Any = None) -> SentBatch:
        """Remember a batch that `check` found to be the next one."""
        producer_id = header.producer_id
        state = self._states.pop(producer_id, None)
        if state is None or state.epoch != header.producer_epoch:
            state = _Producer(header.producer_epoch)
        self._remember(producer_id, state)
        batch = SentBatch(header.base_sequence, _last_sequence(header), base_offset, pending)
        state.batches.append(batch)
        state.awaited = None
        if len(state.batches) > BATCHES_MAX:
            del state.batches[0]
        return batch

    def _remember(self, producer_id: int, state: _Producer) -> None:
        self._states[producer_id] = state  # the most recently heard of stands last
        if len(self._states) > self._producers_max:
            del self._states[next(iter(self._states))]

    def refuse(self, header: BatchHeader) -> None:
        """It was not taken, for now: of an unknown producer nothing else is, before it came."""
        if header.producer_id not in self._states:
            state = _Producer(header.producer_epoch)
            state.awaited = header.base_sequence
            self._remember(header.producer_id, state)

    def give_up(self, header: BatchHeader, batch: SentBatch) -> None:
        """The log did not take it: when it comes again it is new."""
        state = self._states.get(header.producer_id)
        if state is not None and batch in state.batches:
            state.batches.remove(batch)
            if state.awaited is None:
                state.awaited = batch.first

    def replay(self, header: BatchHeader, base_offset: int) -> None:
        """What the log says after a restart: it was checked when it was taken."""
        state = self._states.get(header.producer_id)
        if state is not None:
            if header.producer_epoch < state.epoch:
                return
            if any(batch.base_offset >= base_offset for batch in state.batches):
                return  # the checkpoint knew it
        self.take(header, base_offset)

    def meta(self) -> tuple[ProducerMeta, ...]:
        """Without what is under way: that is in the log behind the checkpoint, if anywhere."""
        return tuple(
            ProducerMeta(
                producer_id,
                state.epoch,
                tuple(
                    (batch.first, batch.last, batch.base_offset)
                    for batch in state.batches
                    if batch.pending is None
                ),
            )
            for producer_id, state in self._states.items()
        )

    def restore(self, metas: tuple[ProducerMeta, ...]) -> None:
        for meta in metas:
            state = self._states[meta.producer_id] = _Producer(meta.epoch)
            state.batches = [SentBatch(*batch) for batch in meta.batches]


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.record_count - 1) & _SEQUENCE_MASK


def _out_of_order(header: BatchHeader, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} sent sequence {header.base_sequence} where "
        f"{expected} comes next",
    )
