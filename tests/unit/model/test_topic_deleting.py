"""Deleting for good: by seq, by tag, and what readers and the state see of it."""

from __future__ import annotations

import numpy
import pytest

from headwater.core.errors import InvalidRequestError
from headwater.model.index import SeqIndex, Seqs
from headwater.model.match import parse_match
from headwater.model.selection import select
from tests.unit.model.topics import seqs_from, topic, write


@pytest.mark.claims(210, 221, 277)
def test_a_deleted_record_in_the_middle_leaves_a_silent_gap_and_its_slot() -> None:
    log = topic()
    write(log, 2, tag=b"keep")
    write(log, 1, tag=b"drop")
    write(log, 2, tag=b"keep")
    deletion = log.delete(matcher=parse_match("drop"))
    assert (deletion.records, deletion.bytes, deletion.seqs.tolist()) == (1, 10, [3])
    assert (log.count, log.bytes, log.evict_floor, len(log.index)) == (4, 40, 1, 5)
    selection = select(log, 0)
    assert (selection.seqs.tolist(), selection.tombstone) == ([1, 2, 4, 5], None)
    assert select(log, 2).tombstone is None


@pytest.mark.claims(222, 223)
def test_dead_slots_are_popped_once_the_front_reaches_them() -> None:
    log = topic()
    write(log, 5)
    log.delete_seqs(numpy.array([2, 3]))
    assert log.index.base_seq == 1
    log.delete_seqs(numpy.array([1]))
    assert log.index.base_seq == log.earliest_seq == 4


@pytest.mark.claims(236, 237)
def test_before_seq_alone_moves_the_floor_and_readers_start_behind_it() -> None:
    log = topic()
    write(log, 10)
    deletion = log.delete(before_seq=7)
    assert (deletion.records, deletion.bytes, deletion.earliest_seq) == (6, 60, 7)
    assert (log.delete_below, log.evict_floor) == (7, 1)
    assert seqs_from(log) == [7, 8, 9, 10]
    log.delete(before_seq=3)
    assert log.delete_below == 7


def test_before_seq_beyond_the_head_deletes_only_what_was_there() -> None:
    log = topic()
    write(log, 3)
    log.assign(1)
    deletion = log.delete(before_seq=1_000)
    assert (deletion.records, deletion.upto_seq) == (3, 3)
    log.publish(4, [48], 0, [0])
    assert seqs_from(log) == [4]
    log.delete(before_seq=1_000, upto_seq=deletion.upto_seq)
    assert seqs_from(log) == [4]


@pytest.mark.claims(233, 234, 235)
def test_a_match_may_be_bounded_by_a_seq() -> None:
    log = topic()
    for tag in (b"user-1", b"user-2", b"other", b"user-1", b"user-3"):
        write(log, 1, tag=tag)
    assert log.delete(before_seq=4, matcher=parse_match("user-1")).seqs.tolist() == [1]
    assert log.delete(matcher=parse_match("user-*")).seqs.tolist() == [2, 4, 5]
    assert log.delete(matcher=parse_match("user-*")).records == 0
    assert seqs_from(log) == [3]


@pytest.mark.claims(277)
def test_a_delete_by_tag_is_of_its_moment_and_spares_what_comes_later() -> None:
    log = topic()
    write(log, 2, tag=b"x")
    log.delete(matcher=parse_match("x"))
    write(log, 1, tag=b"x")
    assert seqs_from(log) == [3]


@pytest.mark.claims(230)
def test_a_delete_by_tag_does_not_look_at_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    log = topic()
    write(log, 5_000, tag=b"many")
    write(log, 1, tag=b"one")
    looked: list[int] = []
    marked = SeqIndex.mark_deleted

    def counting(index: SeqIndex, seqs: Seqs) -> Seqs:
        looked.append(len(seqs))
        return marked(index, seqs)

    monkeypatch.setattr(SeqIndex, "mark_deleted", counting)
    log.delete(matcher=parse_match("one"))
    assert looked == [1]


@pytest.mark.claims(232)
def test_a_tag_whose_records_are_gone_is_forgotten() -> None:
    log = topic(cap_records=1)
    write(log, 1, tag=b"a")
    write(log, 1, tag=b"b")
    assert log.tags is not None
    log.delete(matcher=parse_match("a"))
    assert len(log.tags) == 1
    write(log, 20_000, tag=b"c")
    log.evict(0)
    assert log.tags.exact(b"b").tolist() == []
    assert len(log.tags) == 1


def test_deleting_everything_leaves_an_empty_topic_that_reads_silently() -> None:
    log = topic()
    write(log, 4, tag=b"x")
    deletion = log.delete(matcher=parse_match("*"))
    assert (deletion.records, deletion.earliest_seq, log.count, log.bytes) == (4, 5, 0, 0)
    selection = select(log, 0)
    assert (selection.next_from_seq, selection.caught_up, selection.tombstone) == (4, True, None)


def test_a_delete_that_names_nothing_is_refused() -> None:
    log = topic()
    write(log, 1)
    with pytest.raises(InvalidRequestError):
        log.delete()
    assert log.count == 1


def test_entries_of_what_was_deleted_tell_where_it_is() -> None:
    log = topic()
    write(log, 4, tag=b"x")
    log.index.set_offsets(1, numpy.array([0, 48]))
    deletion = log.delete(matcher=parse_match("x"))
    assert deletion.entries["offset"].tolist() == [0, 48, 0, 0]
    in_wal = (deletion.entries["flags_check"] & 0x10 != 0).tolist()
    assert in_wal == [False, False, True, True]
