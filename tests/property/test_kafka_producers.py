"""Producers of which two are awake at a time against producers that never sleep."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import HeadwaterError
from headwater.engine.kafka import producers as module
from headwater.engine.kafka.producers import Producers, SentBatch
from headwater.format.kafka.batch import BatchHeader
from headwater.format.kafka.checkpoint import ProducerMeta, unpack_producer
from headwater.server.kafka.refusals import code_of

SLEEPY = 2
Sent = tuple[BatchHeader, SentBatch]

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ("send", "send", "send", "again", "settle", "fail", "refuse", "save", "restart", "wait")
        ),
        st.integers(0, 5),
        st.sampled_from((0, 0, 0, 0, 1, -1)),
        st.integers(1, 3),
    ),
    max_size=60,
)


class Partition:
    """A partition as its producers see it: batches under way, and the log that answers them."""

    def __init__(self, awake_max: int) -> None:
        self.awake_max = awake_max
        self.producers = Producers(1_000)
        self.under_way: list[Sent] = []
        self.next: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.offset = 0
        self.now_s = 0

    def header(self, producer_id: int, sequence: int, count: int) -> BatchHeader:
        epoch = self.epochs.get(producer_id, 0)
        return BatchHeader(0, 0, 0, 2, 0, 0, 0, 0, 0, producer_id, epoch, sequence, count)

    def step(self, kind: str, producer_id: int, off: int, count: int) -> Any:
        sequence = self.next.get(producer_id, 0)
        if kind in ("send", "again"):
            if off == 1:
                self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1
                sequence = 0
            elif off == -1:
                sequence += 1  # a gap
            header = self.header(producer_id, sequence - count * (kind == "again"), count)
            return self.send(header) if header.base_sequence >= 0 else None
        if kind == "refuse":
            return self.producers.refuse(self.header(producer_id, sequence, count), self.now_s)
        if kind in ("settle", "fail") and self.under_way:
            return self.end(*self.under_way.pop(0), failed=kind == "fail")
        if kind == "wait":
            self.now_s += 10
        if kind == "save" and self.awake_max == SLEEPY:
            self.producers.meta()  # which puts to sleep whoever can
        if kind == "restart":
            self.under_way.clear()
            packed, self.producers = self.producers.meta(), Producers(1_000)
            self.producers.restore(packed)
        return None

    def send(self, header: BatchHeader) -> Any:
        try:
            known = self.producers.check(header)
        except HeadwaterError as error:
            return code_of(error)
        if known is not None:
            return known.base_offset, known.pending is not None
        batch = self.producers.take(header, self.offset, "under way", self.now_s)
        self.under_way.append((header, batch))
        self.offset += header.record_count
        self.next[header.producer_id] = header.base_sequence + header.record_count
        return "taken"

    def end(self, header: BatchHeader, batch: SentBatch, *, failed: bool) -> None:
        if failed:
            self.producers.give_up(header, batch)
            self.next[header.producer_id] = header.base_sequence
        batch.pending = None

    def known(self) -> dict[int, ProducerMeta]:
        metas = map(unpack_producer, self.producers.meta())
        return {meta.producer_id: meta for meta in metas}


@settings(deadline=None, max_examples=200)
@given(steps)
def test_producers_that_sleep_answer_like_those_that_never_do(
    told: list[tuple[str, int, int, int]],
) -> None:
    sleepy, lively = Partition(SLEEPY), Partition(10**9)
    with pytest.MonkeyPatch.context() as patch:
        for step in told:
            answers = []
            for partition in (sleepy, lively):
                patch.setattr(module, "AWAKE_MAX", partition.awake_max)
                answers.append(partition.step(*step))
            assert answers[0] == answers[1]
            assert len(sleepy.producers) == len(lively.producers)
        assert sleepy.known() == lively.known()
