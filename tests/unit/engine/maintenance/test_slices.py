"""Maintenance asks the owner for a moment at a time, and whatever happens between two of them is
counted once and lost never."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pytest

import headwater
from headwater.config.engine import EngineSettings
from headwater.engine import owner as owners
from headwater.engine.maintenance import checkpointer
from headwater.engine.maintenance.breaks import COMPUTES_US, RESTS, Breaks
from headwater.engine.owner import REST_US, SLICE_US, BatonOwner, call_in_slices
from headwater.engine.state.engine_core import EngineCore
from headwater.testing import ManualClock
from tests.unit.engine.conftest import Open

T = TypeVar("T")


class CountingOwner(BatonOwner):
    """Something else happens after each call."""

    def __init__(self) -> None:
        super().__init__()
        self.rests: list[int] = []
        self.between: Callable[[int], None] = lambda _: None
        self._depth = 0
        self.calls = 0

    def rest(self, us: int) -> None:
        self.rests.append(us)

    def call(self, work: Callable[[], T]) -> T:
        self._depth += 1
        try:
            done = super().call(work)
        finally:
            self._depth -= 1
        if not self._depth:
            self.calls += 1
            self._depth += 1  # what happens in between has calls of its own
            try:
                self.between(self.calls)
            finally:
                self._depth -= 1
        return done


def test_the_owner_is_let_go_after_a_moment_and_every_step_is_taken_once() -> None:
    clock, owner, taken = ManualClock(), CountingOwner(), []

    def steps() -> Iterator[None]:
        for number in range(10):
            taken.append((number, owner.calls))
            clock.advance(SLICE_US // 2)
            yield

    call_in_slices(owner, clock, steps())
    assert [number for number, _ in taken] == list(range(10))
    assert [calls for _, calls in taken] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert owner.rests == [REST_US] * 5, "and others are served for longer than that"


@dataclass
class Core:
    """As much of the core as breaks need."""

    owner: CountingOwner
    settings: EngineSettings = field(default_factory=lambda: EngineSettings(tail_bytes_max=400))
    closing: bool = False
    tail_bytes: int = 100


def test_a_thread_that_computed_rests_several_times_as_long() -> None:
    core, used = Core(CountingOwner()), [0]
    breaks = Breaks(cast(EngineCore, core), lambda: used[0])
    for us in (COMPUTES_US - 1, 1, COMPUTES_US * 3):
        used[0] += us
        breaks.take()
    assert core.owner.rests == [COMPUTES_US * RESTS, COMPUTES_US * 3 * RESTS]


@pytest.mark.parametrize("urgent", [{"closing": True}, {"tail_bytes": 101}])
def test_a_thread_takes_no_break_when_the_end_or_a_full_memory_waits_for_it(
    urgent: dict[str, Any],
) -> None:
    core, used = Core(CountingOwner(), **urgent), [0]
    breaks = Breaks(cast(EngineCore, core), lambda: used[0])
    used[0] += 1_000_000
    breaks.take()
    assert core.owner.rests == []


def test_a_step_that_fails_ends_the_work_with_its_error() -> None:
    def steps() -> Iterator[None]:
        yield
        raise ValueError("as it must")

    with pytest.raises(ValueError, match="as it must"):
        call_in_slices(CountingOwner(), ManualClock(), steps())


class Busy:
    """A database whose maintenance is interrupted after every step."""

    def __init__(self, db: headwater.Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(owners, "SLICE_US", 0)
        self.db = db
        self.core = db.engine.core
        self.core.owner = self.owner = CountingOwner()

    def tails(self) -> tuple[int, int]:
        """What the core counts, and what its topics count and have."""
        return self.core.tail_bytes, sum(topic.tail_bytes for topic in self.core.registry)

    def not_in_segments(self) -> int:
        return sum(
            len(chunk.buffer)
            for topic in self.core.registry
            for chunk in topic.tail.chunks(1, topic.log.visible_seq)
            if chunk.first_seq > topic.checkpointed_seq
        )


@pytest.fixture
def busy(opened: Open, monkeypatch: pytest.MonkeyPatch) -> Busy:
    monkeypatch.setattr(checkpointer, "CHUNKS_AT_ONCE", 1)
    return Busy(opened(cache_bytes=2_000), monkeypatch)


def test_writes_evictions_and_drops_between_the_slices_of_a_checkpoint_leave_its_sums_right(
    busy: Busy,
) -> None:
    db = busy.db
    db.create("capped", cap_records=5)
    for topic in ("capped", "grows", "goes"):
        for number in range(20):
            db.append(topic, {"data": number})
    expected = list(range(20))

    def between(number: int) -> None:
        db.append("capped", {"data": number})
        db.append("grows", {"data": number})
        expected.append(number)
        if number == 30:
            db.drop("goes")

    busy.owner.between = between
    db.checkpoint()
    assert busy.owner.calls > 40, "each topic and each chunk is a step"
    busy.owner.between = lambda _: None
    assert busy.tails() == (busy.not_in_segments(),) * 2
    db.checkpoint()
    assert busy.tails() == (0, 0)
    assert not busy.core.dirty
    assert [record.data for record in db.diff("grows", limit=1_000).records] == expected
    assert [record.data for record in db.diff("capped", limit=9).records] == expected[-5:]


def test_a_snapshot_says_of_a_topic_what_is_true_when_it_is_taken(busy: Busy, opened: Open) -> None:
    db = busy.db
    for topic in ("a", "b", "c"):
        db.append(topic, {"data": 0})
    heads: dict[str, int] = {}

    def between(number: int) -> None:
        for topic in ("a", "b", "c"):
            heads[topic] = db.append(topic, {"data": number}).head_seq

    busy.owner.between = between
    db.checkpoint()
    busy.owner.between = lambda _: None
    db.close()
    again = opened()
    assert {state.topic: state.head_seq for state in again.topics()} == heads
    for topic, head in heads.items():
        assert len(again.diff(topic, limit=1_000).records) == head
