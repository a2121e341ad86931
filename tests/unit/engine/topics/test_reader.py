"""Where reads find their bytes, and what a reader is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.core.errors import InvalidRequestError, TopicNotFoundError
from headwater.engine.topics.reader import SegmentRead, TailRead
from headwater.store.segment import Segment
from tests.unit.engine.conftest import Open


@pytest.mark.claims(266)
def test_records_that_no_checkpoint_has_seen_are_read_without_any_file(opened: Open) -> None:
    db = opened()
    db.append("a", [{"data": n} for n in range(5)])
    plan = db.engine.plan(db.engine.topic("a"), 0, 10, 1_000_000)
    assert [type(read) for read in plan.reads] == [TailRead]
    assert not plan.needs_files
    assert [record.data for record in db.diff("a").records] == [0, 1, 2, 3, 4]


def test_a_read_goes_on_from_segments_into_the_tail_without_a_seam(opened: Open) -> None:
    db = opened(cache_bytes=0)
    db.append("a", [{"data": n} for n in range(25)])
    db.checkpoint()
    db.append("a", [{"data": n} for n in range(25, 30)])
    plan = db.engine.plan(db.engine.topic("a"), 0, 100, 1_000_000)
    kinds = [type(read) for read in plan.reads]
    assert kinds == [SegmentRead, SegmentRead, SegmentRead, TailRead]
    assert [record.data for record in db.diff("a").records] == list(range(30))


@pytest.mark.claims(268)
def test_the_segment_of_a_seq_is_found_among_many(opened: Open) -> None:
    db = opened()
    db.append("a", {"data": 1})
    segments = [Segment(first, 3, 0, True, 0) for first in range(10, 1000, 5)]
    topic = replace(db.engine.topic("a"), segments=segments)
    for seq in range(1005):
        behind = [at for at, each in enumerate(segments) if seq <= each.end_seq]
        assert topic.segment_position(seq) == (behind[0] if behind else len(segments))
    assert replace(topic, segments=[]).segment_position(1) == 0


def test_a_filter_that_keeps_nothing_still_moves_the_cursor(opened: Open) -> None:
    db = opened()
    db.append("a", [{"data": n, "node": "me"} for n in range(10)])
    found = db.diff("a", node="me", limit=3)
    assert found.records == []
    assert found.caught_up
    assert found.next_from_seq == 10


def test_own_records_come_back_where_the_topic_says_so(opened: Open) -> None:
    db = opened()
    db.create("a", dedupe_node=False)
    db.append("a", {"data": 1, "node": "me"})
    assert len(db.diff("a", node="me").records) == 1


def test_a_watch_ends_when_it_was_idle_for_as_long_as_asked(opened: Open) -> None:
    db = opened()
    db.append("a", [{"data": n} for n in range(3)])
    assert [getattr(item, "data", None) for item in db.watch("a", idle_ms=1)] == [0, 1, 2]


def test_a_batch_has_at_least_one_record_however_small_the_limit_of_bytes(opened: Open) -> None:
    db = opened()
    db.append("a", [{"data": "x" * 1000} for _ in range(3)])
    assert len(db.diff("a", max_batch_bytes=10).records) == 1


def test_reading_what_is_not_there_and_what_makes_no_sense_is_refused(opened: Open) -> None:
    db = opened()
    with pytest.raises(TopicNotFoundError):
        db.diff("nobody")
    db.create("a")
    with pytest.raises(InvalidRequestError):
        db.diff("a", -1)
    with pytest.raises(InvalidRequestError):
        db.delete("a")
    with pytest.raises(InvalidRequestError):
        db.append("a", {"data": 1, "colour": "red"})
    assert db.state("a").head_seq == 0
