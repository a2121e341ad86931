"""Routers and the log: what it is told of copies, and what is left of them after a crash."""

from __future__ import annotations

import pytest

import headwater
from headwater.engine.topics.record_encoding import encode_records
from headwater.format.frame import FrameType
from tests.rig.life import with_shards
from tests.rig.stepped import SteppedOwner
from tests.unit.engine.routers.router_rig import ROOMY, Place


@pytest.fixture
def place() -> Place:
    return Place()


def test_copies_are_logged_only_when_something_else_about_their_topic_is(place: Place) -> None:
    place.db.put_router("r", source="in", dest="out")
    before = place.frames(FrameType.APPEND)
    place.write(1, 2, 3)
    place.forward()
    assert place.frames(FrameType.APPEND) == before + 3
    place.write("own", topic="out")
    assert place.frames(FrameType.APPEND) == before + 7
    place.write("own again", topic="out")
    assert place.frames(FrameType.APPEND) == before + 8, "each of them once"
    place.crash()
    place.forward()
    assert place.datas("out") == [1, 2, 3, "own", "own again"], "and not copied again"


def test_a_copy_that_was_deleted_does_not_come_back_with_a_crash(place: Place) -> None:
    place.db.put_router("r", source="in", dest="out")
    place.write(1, 2, 3)
    place.forward()
    place.db.delete("out", before_seq=3)
    place.crash()
    place.forward()
    assert place.datas("out") == [3]


def test_copies_go_through_the_log_behind_writes_that_are_on_their_way(place: Place) -> None:
    place.db.create("in", cap_records=4)
    place.db.put_router("r", source="in", dest="out")
    place.write(*range(6))
    engine, owner = place.db.engine, place.db.engine.core.owner
    assert isinstance(owner, SteppedOwner)
    for source_seq in (0, 2):
        with owner.holding():
            write = engine.append("out", encode_records([{"data": "own"}]))
            place.forward()
            assert not write.done
            assert place.db.router("r").source_seq == source_seq, "they wait for their turn"
        assert write.done
    diff = place.db.diff("out", 1)
    assert diff.tombstone is not None
    assert (diff.tombstone.gap_from, diff.tombstone.gap_to) == (2, 3)
    assert place.datas("out") == ["own", "own", 2, 3, 4, 5]
    place.crash()
    again = place.db.diff("out", 1)
    assert again.records == diff.records
    assert again.tombstone is not None
    assert (again.tombstone.reason, again.tombstone.gap_to) == ("source_trim", 3)
    place.forward()
    assert place.datas("out")[:6] == ["own", "own", 2, 3, 4, 5]


def test_a_paused_forwarder_copies_nothing_until_it_is_resumed(place: Place) -> None:
    copy_rounds = place.db.engine.copy_rounds
    place.db.put_router("r", source="in", dest="out")
    copy_rounds.pause()
    place.write(*range(10))
    copy_rounds.run_dry()
    assert place.db.router("r").lag == 10
    copy_rounds.records_per_round = 4
    copy_rounds.resume()
    assert copy_rounds.round()
    assert place.db.router("r").lag == 6, "a round does no more than it may"
    copy_rounds.run_dry()
    assert place.datas("out") == list(range(10))


def test_a_source_that_forgot_what_it_had_is_followed_from_where_it_is(place: Place) -> None:
    place.db.create("weak", durability="ephemeral")
    place.db.put_router("r", source="weak", dest="out", guarantee="exactly_once")
    place.write(1, 2, 3, topic="weak")
    place.forward()
    place.db.checkpoint()
    place.write(4, topic="weak")
    place.forward()
    place.crash()
    head = place.db.state("out").head_seq
    assert head >= 4, "its seqs are not used again"
    place.write("new", topic="weak")
    place.forward()
    assert place.datas("out")[-1] == "new"
    assert place.datas("out")[:3] == [1, 2, 3]


def test_a_source_in_segments_is_copied_as_well_as_one_in_memory(place: Place) -> None:
    place.db.put_router("r", source="in", dest="out")
    copy_rounds = place.db.engine.copy_rounds
    copy_rounds.pause()
    for number in range(40):
        place.write({"n": number}, tag=f"t{number % 3}")
    place.db.checkpoint()
    place.restart()
    place.forward()
    assert place.datas("out") == [{"n": number} for number in range(40)]


def test_marks_and_definitions_survive_a_change_of_shards() -> None:
    place = Place(shards=2)
    for number in range(4):
        place.db.put_router(f"r{number}", source="in", dest=f"out{number}")
    place.write(1, 2)
    place.forward()
    place.settings = with_shards(ROOMY, 3)
    place.crash()
    place.write(3)
    place.forward()
    for number in range(4):
        assert sorted(set(place.datas(f"out{number}"))) == [1, 2, 3]
    assert len(place.db.routers()) == 4


def test_a_read_only_reader_sees_copies_once_they_are_in_segments(place: Place) -> None:
    place.db.put_router("r", source="in", dest="out")
    directory = place.db.engine.core.directory
    with headwater.open(directory, read_only=True, disk=place.disk, clock=place.clock) as reader:
        place.write(1, 2)
        place.forward()
        assert [record.data for record in reader.diff("in").records] == [1, 2]
        place.db.checkpoint()
        reader.refresh()
        assert [record.data for record in reader.diff("out").records] == [1, 2]
        place.write("own", topic="out")
        reader.refresh()
        assert [record.data for record in reader.diff("out").records] == [1, 2, "own"]


def test_copies_count_as_settled_only_when_the_log_has_them(place: Place) -> None:
    place.db.put_router("r", source="in", dest="out")
    engine, owner = place.db.engine, place.db.engine.core.owner
    assert isinstance(owner, SteppedOwner)
    dest = engine.topic("out")
    for begin in (
        lambda: engine.append("out", encode_records([{"data": "own"}])),
        lambda: engine.topics.delete(dest, 1, None),
        lambda: engine.routers.flush_copies(dest),
    ):
        place.write(1)
        place.forward()
        assert dest.inbound is not None
        first = dest.inbound.unflushed_from
        assert first is not None
        with owner.holding():
            begin()
            assert dest.inbound.unflushed_from == first
        assert dest.inbound.unflushed_from is None


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_snapshot_says_nothing_of_copies_that_came_after_its_checkpoint(
    place: Place, guarantee: str
) -> None:
    place.db.put_router("r", source="in", dest="out", guarantee=guarantee)
    place.write(1)
    place.forward()
    housekeeping = place.db.engine._housekeeping
    cut = housekeeping._checkpointer.run(full=True)
    place.write(2)
    place.forward()
    seen = place.db.diff("out").records
    housekeeping._snapshotter.write(cut.covered)
    place.crash()
    place.forward()
    assert place.datas("out") == [1, 2]
    if guarantee == "exactly_once":
        assert place.db.diff("out").records == seen
