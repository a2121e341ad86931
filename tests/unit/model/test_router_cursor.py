"""How far a router has come, and where it goes on after a crash."""

from __future__ import annotations

from itertools import product

import pytest

from headwater.core.errors import InvariantError
from headwater.model.router import CursorMark, Fate, Guarantee, RouterCursor, Slot, slot_for

ONCE, AGAIN = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE


def cursor(guarantee: Guarantee, source_seq: int = 0, dest_seq: int = 0) -> RouterCursor:
    return RouterCursor(guarantee, CursorMark(source_seq, dest_seq))


def test_every_fate_under_every_promise_has_its_place() -> None:
    table = {(g, f): slot_for(g, f) for g, f in product(Guarantee, Fate)}
    assert len(table) == 6
    assert all(slot is not Slot.NOTHING for (g, _), slot in table.items() if g is ONCE)
    assert {slot for (_, fate), slot in table.items() if fate is Fate.MATCHES} == {Slot.COPY}
    assert {slot for (_, fate), slot in table.items() if fate is Fate.LOST} == {Slot.LOST}
    assert slot_for(AGAIN, Fate.PASSED) is Slot.NOTHING


def test_a_router_walks_up_to_the_visible_horizon_in_steps() -> None:
    router = cursor(AGAIN, 10)
    assert router.next_range(10, 100) is None
    assert router.next_range(500, 100) == (11, 110)
    router.passed(110, copies=40)
    assert router.next_range(150, 100) == (111, 150)
    router.passed(150, copies=0)
    assert router.next_range(150, 100) is None
    assert router.forwarded_total == 40
    with pytest.raises(InvariantError, match="cannot go back"):
        router.passed(149, copies=1)


def test_a_full_destination_holds_the_cursor_until_there_is_room() -> None:
    router = cursor(AGAIN, 10)
    before = router.next_range(20, 5)
    router.hold()
    assert router.held
    assert router.next_range(20, 5) == before
    router.passed(15, copies=5)
    assert router.held is False


def test_what_the_source_lost_before_it_was_copied_is_told_exactly() -> None:
    router = cursor(ONCE, 10)
    assert router.trimmed(11) is None
    trim = router.trimmed(15)
    assert trim == (11, 14)
    assert trim.slots == 4
    router.passed(trim.last_seq, copies=0)
    assert router.trimmed(15) is None
    assert router.next_range(20, 100) == (15, 20)


def test_at_least_once_goes_on_from_its_mark_whatever_survived_behind_it() -> None:
    router = cursor(AGAIN, 100, 40)
    router.passed(130, copies=5)
    router.marked(router.next_mark(45))
    router.passed(160, copies=9)
    router.resume(dest_seq=50)
    assert router.source_seq == 130


def test_exactly_once_goes_on_behind_the_last_place_that_survived() -> None:
    router = cursor(ONCE, 100, 40)
    router.passed(160, copies=9)
    router.resume(dest_seq=40 + 25)
    assert router.source_seq == 125
    router.resume(dest_seq=40 + 25, own_writes=3)
    assert router.source_seq == 122
    with pytest.raises(InvariantError, match="behind its mark"):
        router.resume(dest_seq=39)
