"""What a reader gets in one answer, and where its cursor goes."""

from __future__ import annotations

import numpy
import pytest

from headwater.model.selection import select
from tests.rig.invariants import check_topic
from tests.unit.model.topics import topic, write


@pytest.mark.claims(218)
def test_an_answer_ends_at_the_limit_and_the_next_goes_on_behind() -> None:
    log = topic()
    write(log, 10)
    first = select(log, 0, limit=4)
    assert (first.seqs.tolist(), first.next_from_seq, first.caught_up) == ([1, 2, 3, 4], 4, False)
    last = select(log, 8, limit=4)
    assert (last.seqs.tolist(), last.next_from_seq, last.caught_up) == ([9, 10], 10, True)


def test_an_answer_that_ends_at_the_head_is_caught_up_at_once() -> None:
    log = topic()
    write(log, 4)
    assert select(log, 0, limit=4).caught_up


@pytest.mark.parametrize("holes", [False, True])
def test_an_answer_has_the_bytes_asked_for_but_always_one_record(holes: bool) -> None:
    log = topic()
    write(log, 10, payload=100)
    if holes:
        log.delete_seqs(numpy.array([2]))
    kept = [seq for seq in range(1, 11) if not holes or seq != 2]
    assert select(log, 0, bytes_max=299).seqs.tolist() == kept[:2]
    assert select(log, 0, bytes_max=300).seqs.tolist() == kept[:3]
    assert select(log, 0, bytes_max=1).seqs.tolist() == kept[:1]


def test_the_byte_limit_holds_over_stretches_of_deleted_records() -> None:
    log = topic()
    write(log, 1, payload=50)
    write(log, 40, payload=50)
    write(log, 5, payload=60)
    log.delete_seqs(numpy.arange(2, 42))
    selection = select(log, 0, limit=3, bytes_max=100)
    assert selection.seqs.tolist() == [1]
    assert selection.next_from_seq == 41


def test_deleted_records_move_the_cursor_without_being_answered() -> None:
    log = topic()
    write(log, 100)
    log.delete_seqs(numpy.arange(11, 101))
    selection = select(log, 10, limit=5)
    assert (selection.seqs.tolist(), selection.next_from_seq, selection.caught_up) == (
        [],
        100,
        True,
    )


def test_one_answer_looks_at_a_bounded_number_of_slots() -> None:
    log = topic()
    write(log, 1)
    write(log, 200_000)
    write(log, 1)
    log.delete_seqs(numpy.arange(2, 200_002))
    selection = select(log, 1, limit=10)
    assert selection.seqs.tolist() == []
    assert selection.records_scanned == 65_536
    assert (selection.next_from_seq, selection.caught_up) == (65_537, False)
    cursor, answers = 1, 0
    while not (selection := select(log, cursor)).caught_up:
        cursor, answers = selection.next_from_seq, answers + 1
    assert selection.seqs.tolist() == [200_002]
    assert answers == 3


def test_the_state_of_an_empty_topic_is_plain() -> None:
    log = topic()
    assert (log.head_seq, log.earliest_seq, log.count, log.bytes) == (0, 1, 0, 0)
    selection = select(log, 0)
    assert (selection.next_from_seq, selection.caught_up, selection.tombstone) == (0, True, None)
    check_topic(log)
