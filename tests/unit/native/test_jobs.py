"""The compiled loops over slots and holders give what their pure twins give."""

from __future__ import annotations

import os
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.format.segment import ENTRY_BYTES, INDEX_ENTRY
from headwater.model import slots
from headwater.model.queue import held as held_jobs
from headwater.model.slots import DEAD
from headwater.native import compiled
from tests.unit.native.twins import pure

is_compiled = pytest.mark.skipif(
    compiled("jobs") is None and not os.environ.get("CI"),
    reason="not compiled here: apt-get install gcc python3-dev, then make clean venv",
)
deaths = st.lists(st.booleans(), max_size=40)
holders = st.dictionaries(st.integers(0, 12), st.sampled_from("ab"))
named = st.lists(st.integers(0, 14), max_size=8)
ascending = st.sets(st.integers(0, 14), max_size=8).map(sorted)


def entries(dead: list[bool]) -> bytearray:
    made = numpy.zeros(len(dead), INDEX_ENTRY.dtype)
    made["len"] = numpy.arange(100, 100 + len(dead))
    made["ts"] = 2**64 - 1
    made["flags_check"] = [4 | DEAD if each else 4 for each in dead]
    return bytearray(made.tobytes())


def both(name: str, module: Any, *arguments: Any) -> tuple[Any, Any]:
    """What comes back, or the kind of error, with what became of what was given."""
    found = []
    for run in (getattr(module, name), lambda *a: pure(getattr(module, name), module, *a)):
        mine = [each.copy() if hasattr(each, "copy") else each for each in arguments]
        try:
            told = run(*mine)
        except (ValueError, KeyError, TypeError) as error:
            told = type(error)
        found.append((told, mine))
    return found[0], found[1]


@is_compiled
@pytest.mark.parametrize("name", ["first_alive", "all_alive", "kill_run"])
@given(deaths, st.integers(-2, 42), st.integers(-2, 42))
def test_slots_are_looked_at_the_same_way(name: str, dead: list[bool], low: int, high: int) -> None:
    one, other = both(name, slots, entries(dead), low, high)
    assert one == other


@is_compiled
@given(deaths)
def test_a_run_is_ended_whole_or_not_at_all(dead: list[bool]) -> None:
    buffer = entries(dead)
    before = bytes(buffer)
    size = slots.kill_run(buffer, 0, len(dead))
    if any(dead):
        assert size == -1
        assert bytes(buffer) == before
    else:
        assert size == sum(range(100, 100 + len(dead)))
        assert slots.first_alive(buffer, 0, len(dead)) == len(dead)
    assert len(buffer) == len(before)
    assert len(before) == len(dead) * ENTRY_BYTES


@is_compiled
@given(st.one_of(named, st.builds(lambda a, n: [*range(a, a + n)], named.map(len), st.just(9))))
def test_runs_are_told_the_same_way(seqs: list[int]) -> None:
    assert slots.as_run(seqs) == pure(slots.as_run, slots, seqs)


@is_compiled
@pytest.mark.parametrize("name", ["one_holder", "let_go_together"])
@given(holders, st.one_of(named, ascending))
def test_the_holder_of_all_is_found_the_same_way(
    name: str, held: dict[int, str], seqs: list[int]
) -> None:
    one, other = both(name, held_jobs, held, seqs)
    assert one == other


@is_compiled
@given(holders, holders, st.one_of(named, ascending), st.sampled_from("ab"))
def test_jobs_change_their_place_the_same_way(
    held: dict[int, str], there: dict[int, str], seqs: list[int], holder: str
) -> None:
    one, other = both("hold", held_jobs, held, seqs, holder)
    assert one == other
    known = [seq for seq in dict.fromkeys(seqs) if seq in held]
    one, other = both("move", held_jobs, held, there, known)
    assert one == other


@is_compiled
@pytest.mark.parametrize("seq", [2**70, -(2**70), 1.0, True, "1", None, b"1", (1,)])
def test_what_is_no_seq_is_held_by_nobody_or_left_to_a_closer_look(seq: Any) -> None:
    held: dict[int, str] = {1: "a", 2: "a"}
    assert held_jobs.one_holder(held, [seq]) in (
        None,
        pure(held_jobs.one_holder, held_jobs, held, [seq]),
    )


@is_compiled
def test_what_cannot_be_a_key_is_refused_by_both() -> None:
    one, other = both("one_holder", held_jobs, {1: "a"}, [[1]])
    assert one == other
    assert one[0] is TypeError
