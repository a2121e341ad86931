"""Idempotent producers: the rules about sequence numbers. No clock, no I/O.

The newest five batches of a producer are remembered for each partition, as in Kafka. One that comes
again gets the answer it had; one that leaves a gap is refused; an older epoch is fenced. An unknown
producer may begin with any sequence, because it may have been forgotten; but not behind a batch
that was just refused, or what it sends next would stand before what it sends again.

Producers are many and few of them write at a time. So a few are awake, and all others are kept as
the bytes that the checkpoint has of them: small, and copied there without decoding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Final

from headwater.engine.kafka.errors import ProducerEpochError, SequenceError
from headwater.format.kafka.batch import BatchHeader
from headwater.format.kafka.checkpoint import (
    PackedProducer,
    ProducerMeta,
    pack_producer,
    unpack_producer,
)

BATCHES_MAX: Final = 5
AWAKE_MAX: Final = 32
"""Producers of a partition that are kept ready, beside those with a batch that is under way."""
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
    """One that is awake."""

    __slots__ = ("awaited", "batches", "epoch", "last_write_s")

    def __init__(self, epoch: int, last_write_s: int) -> None:
        self.epoch = epoch
        self.last_write_s = last_write_s
        self.batches: list[SentBatch] = []
        self.awaited: int | None = None
        """The sequence of the first batch that was refused since the last one that was taken."""

    @property
    def expected(self) -> int | None:
        """The sequence that comes next; None when any may."""
        if self.batches:
            return (self.batches[-1].last + 1) & _SEQUENCE_MASK
        return self.awaited

    @property
    def is_under_way(self) -> bool:
        return any(batch.pending is not None for batch in self.batches)

    @property
    def may_sleep(self) -> bool:
        """Its entry in a checkpoint would hold all that is known of it."""
        return self.awaited is None and not self.is_under_way

    def packed(self, producer_id: int) -> PackedProducer:
        """Without what is under way: that is in the log behind the checkpoint, if anywhere."""
        batches = tuple(
            (batch.first, batch.last, batch.base_offset)
            for batch in self.batches
            if batch.pending is None
        )
        return pack_producer(ProducerMeta(producer_id, self.epoch, batches, self.last_write_s))


class Producers:
    """The producers of one partition, in both dicts the most recently used last.

    Times are seconds on any clock that does not go back.
    """

    __slots__ = ("_asleep", "_awake", "_producers_max", "_saved")

    def __init__(self, producers_max: int) -> None:
        self._producers_max = producers_max
        self._awake: dict[int, _Producer] = {}
        self._asleep: dict[int, PackedProducer] = {}
        self._saved: tuple[PackedProducer, ...] | None = None
        """The last result of `meta`. It holds while none is awake and none was forgotten: nothing
        changes asleep."""

    def __len__(self) -> int:
        return len(self._awake) + len(self._asleep)

    def check(self, header: BatchHeader) -> SentBatch | None:
        """None when the batch is the next one; what was kept of it when it came before."""
        state = self._find(header.producer_id)
        if state is None:
            return None
        first = header.base_sequence
        if header.producer_epoch < state.epoch:
            raise ProducerEpochError(
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

    def take(
        self, header: BatchHeader, base_offset: int, pending: Any = None, now_s: int = 0
    ) -> SentBatch:
        """Remember a batch that `check` found to be the next one."""
        producer_id = header.producer_id
        state = self._find(producer_id)
        if state is None or state.epoch != header.producer_epoch:
            state = _Producer(header.producer_epoch, now_s)
        batch = SentBatch(header.base_sequence, _last_sequence(header), base_offset, pending)
        state.batches.append(batch)
        state.awaited = None
        state.last_write_s = now_s
        if len(state.batches) > BATCHES_MAX:
            del state.batches[0]
        self._remember(producer_id, state)
        return batch

    def refuse(self, header: BatchHeader, now_s: int = 0) -> None:
        """It was not taken, for now: of an unknown producer nothing else is, before it came."""
        if header.producer_id not in self._awake and header.producer_id not in self._asleep:
            state = _Producer(header.producer_epoch, now_s)
            state.awaited = header.base_sequence
            self._remember(header.producer_id, state)

    def give_up(self, header: BatchHeader, batch: SentBatch) -> None:
        """The log did not take it: when it comes again it is new."""
        state = self._find(header.producer_id)
        if state is not None and batch in state.batches:
            state.batches.remove(batch)
            if state.awaited is None:
                state.awaited = batch.first

    def replay(self, header: BatchHeader, base_offset: int, now_s: int = 0) -> None:
        """A batch of the log after a restart: it was checked when it was taken."""
        state = self._find(header.producer_id)
        if state is not None:
            if header.producer_epoch < state.epoch:
                return
            if any(batch.base_offset >= base_offset for batch in state.batches):
                return  # the checkpoint knew it
        self.take(header, base_offset, now_s=now_s)

    def forget_idle(self, since_s: int, most: int) -> int:
        """Forget up to so many that wrote nothing from then on; how many.

        One that wrote before another may stand behind it, because it was used without writing.
        It is forgotten with that one: late, never early.
        """
        idle: list[int] = []
        for producer_id, packed in self._asleep.items():
            if len(idle) == most or unpack_producer(packed).last_write_s >= since_s:
                break
            idle.append(producer_id)
        else:
            for producer_id, state in self._awake.items():
                if len(idle) == most or state.last_write_s >= since_s or state.is_under_way:
                    break
                idle.append(producer_id)
        for producer_id in idle:
            self._forget(producer_id)
        return len(idle)

    def meta(self) -> tuple[PackedProducer, ...]:
        """For the checkpoint. Those that may sleep fall asleep."""
        if self._awake or self._saved is None:
            busy: list[PackedProducer] = []
            for producer_id, state in tuple(self._awake.items()):
                packed = state.packed(producer_id)
                if state.may_sleep:
                    del self._awake[producer_id]
                    self._asleep[producer_id] = packed
                else:
                    busy.append(packed)
            self._saved = (*self._asleep.values(), *busy)
        return self._saved

    def restore(self, producers: Iterable[PackedProducer]) -> None:
        """As a checkpoint has them. Copies: they are views of all of it."""
        self._saved = None
        for packed in producers:
            self._asleep[unpack_producer(packed).producer_id] = packed.copy()

    def _find(self, producer_id: int) -> _Producer | None:
        """One that is known is awake from here on."""
        state = self._awake.get(producer_id)
        if state is not None or producer_id not in self._asleep:
            return state
        meta = unpack_producer(self._asleep.pop(producer_id))
        state = _Producer(meta.epoch, meta.last_write_s)
        state.batches = [SentBatch(*batch) for batch in meta.batches]
        self._remember(producer_id, state)
        return state

    def _remember(self, producer_id: int, state: _Producer) -> None:
        """As the most recently used one."""
        awake = self._awake
        awake.pop(producer_id, None)
        awake[producer_id] = state
        if len(awake) > AWAKE_MAX:
            # Two, so that the awake do not become more where the first may not sleep.
            for other in tuple(itertools.islice(awake, 2)):
                self._put_to_sleep(other)
        if len(awake) + len(self._asleep) > self._producers_max:
            self._forget(next(iter(self._asleep or awake)))

    def _put_to_sleep(self, producer_id: int) -> None:
        state = self._awake.pop(producer_id)
        if state.may_sleep:
            self._asleep[producer_id] = state.packed(producer_id)
        else:
            self._awake[producer_id] = state  # its turn comes again

    def _forget(self, producer_id: int) -> None:
        self._saved = None
        self._awake.pop(producer_id, None)
        self._asleep.pop(producer_id, None)


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.record_count - 1) & _SEQUENCE_MASK


def _out_of_order(header: BatchHeader, expected: int) -> SequenceError:
    return SequenceError(
        f"producer {header.producer_id} sent sequence {header.base_sequence} where "
        f"{expected} comes next",
    )
