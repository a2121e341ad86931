"""Runs of jobs with one holder are what a dict with a place for each job is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.model.queue.held import Held

SEQS = 40
ranges = st.tuples(st.integers(0, SEQS), st.integers(1, 12))
subsets = st.lists(st.integers(0, SEQS + 12), min_size=1, max_size=8)


class HeldMachine(RuleBasedStateMachine):
    """Two places, and beside each a dict with the same jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.held: Held[str] = Held()
        self.other: Held[str | None] = Held()
        self.twin: dict[int, str] = {}
        self.other_twin: dict[int, str | None] = {}

    def _free(self, seqs: Any) -> bool:
        return not any(seq in self.twin or seq in self.other_twin for seq in seqs)

    @rule(run=ranges, holder=st.sampled_from("abc"))
    def hold_neighbours(self, run: tuple[int, int], holder: str) -> None:
        seqs = range(run[0], sum(run))
        if self._free(seqs):
            self.held.hold(seqs, holder)
            self.twin.update(dict.fromkeys(seqs, holder))

    @rule(seqs=subsets, holder=st.sampled_from("abc"))
    def hold_some(self, seqs: list[int], holder: str) -> None:
        seqs = sorted(set(seqs))
        if self._free(seqs):
            self.held.hold(seqs, holder)
            self.twin.update(dict.fromkeys(seqs, holder))

    @rule(seq=st.integers(0, SEQS), holder=st.sampled_from("abc"))
    def set_one(self, seq: int, holder: str) -> None:
        if seq not in self.other_twin:
            self.held[seq] = holder
            self.twin[seq] = holder

    @rule(seq=st.integers(0, SEQS + 12))
    def take_one_out(self, seq: int) -> None:
        assert self.held.pop(seq) == self.twin.pop(seq, None)
        with pytest.raises(KeyError):
            self.held[seq]
        with pytest.raises(KeyError):
            del self.held[seq]

    @precondition(lambda self: self.twin)
    @rule(data=st.data())
    def delete_one(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.twin)))
        assert self.held[seq] == self.twin.pop(seq)
        del self.held[seq]

    @precondition(lambda self: self.twin)
    @rule(data=st.data())
    def move_some(self, data: st.DataObject) -> None:
        seqs = self._pick(data, self.twin)
        self.held.move(self.other, seqs)
        self.other_twin.update((seq, self.twin.pop(seq)) for seq in seqs)

    @precondition(lambda self: self.other_twin)
    @rule(data=st.data())
    def let_some_go(self, data: st.DataObject) -> None:
        seqs = self._pick(data, self.other_twin)
        holders = {self.other_twin[seq] for seq in seqs}
        one = self.other.let_go_together(seqs)
        if one is not None:
            assert holders == {one}
            for seq in seqs:
                del self.other_twin[seq]

    @rule(seqs=subsets)
    def find_the_holder_of_some(self, seqs: list[int]) -> None:
        self._check_holder(seqs)

    @rule(run=ranges)
    def find_the_holder_of_neighbours(self, run: tuple[int, int]) -> None:
        self._check_holder([*range(run[0], sum(run))])

    def _check_holder(self, seqs: list[int]) -> None:
        one = self.held.one_holder(seqs)
        if one is not None:
            assert {self.twin.get(seq) for seq in seqs} == {one}
            assert seqs == sorted(set(seqs))

    def _pick(self, data: st.DataObject, twin: dict[int, Any]) -> list[int]:
        """Neighbours, as far as there are any, or any that are there."""
        first = data.draw(st.sampled_from(sorted(twin)))
        count = data.draw(st.integers(1, 10))
        if data.draw(st.booleans()):
            return [seq for seq in range(first, first + count) if seq in twin]
        return data.draw(st.lists(st.sampled_from(sorted(twin)), min_size=1, unique=True))

    @invariant()
    def both_are_the_same(self) -> None:
        for held, twin in ((self.held, self.twin), (self.other, self.other_twin)):
            assert dict(held.items()) == twin
            assert len(held) == len(twin) == len([*held])
            for seq in range(SEQS + 14):
                assert (seq in held) == (seq in twin)
                assert held.get(seq) == twin.get(seq)


TestHeldAgainstADict = HeldMachine.TestCase


def test_a_claim_of_neighbours_is_one_entry_until_a_part_of_it_leaves() -> None:
    held: Held[str] = Held()
    held.hold(range(10, 110), "a")
    assert len(held) == 100
    assert len(held._runs) == 1
    assert not held._alone
    assert held.pop(50) == "a"
    assert len(held._runs) == 2
    assert len(held) == 99
    assert held.one_holder([*range(10, 50)]) == "a"
    assert held.one_holder([*range(10, 52)]) is None


@given(st.sampled_from([2**70, 1.0, True, "1", None, b"1"]))
def test_what_is_no_seq_has_no_holder_among_neighbours(what: Any) -> None:
    held: Held[str] = Held()
    held.hold(range(1, 9), "a")
    assert held.one_holder([1, what, 3]) is None
    if what is not True and what != 1.0:
        assert held.get(what) is None
