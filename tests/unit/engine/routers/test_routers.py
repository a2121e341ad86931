"""Routers in an engine: what is defined, what is copied, what is refused."""

from __future__ import annotations

import pytest

from headwater.api.keywords import RouterKeywords
from headwater.core.errors import (
    InvalidRequestError,
    RouterCycleError,
    RouterNotFoundError,
    TopicExistsIncompatibleError,
    TopicNotFoundError,
)
from headwater.model.router import router_settings
from tests.unit.engine.routers.router_rig import Place


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.claims(304)
def test_a_router_is_defined_once_and_found_by_every_end(place: Place) -> None:
    made = place.db.put_router("in>out", source="in", dest="out", filter="x*", preserve_node=False)
    assert (made.source, made.dest, made.filter, made.preserve_node) == ("in", "out", "x*", False)
    assert (made.preserve_tag, made.allow_cycle, made.guarantee) == (True, False, "at_least_once")
    definition: RouterKeywords = {
        "source": "in",
        "dest": "out",
        "filter": "x*",
        "preserve_node": False,
    }
    assert place.db.put_router("in>out", **definition) == made
    assert [r.router for r in place.db.routers(source="in")] == ["in>out"]
    assert [r.router for r in place.db.routers(dest="in")] == []
    assert place.db.state("out").count == 0, "the destination was made"
    place.restart()
    assert place.db.router("in>out") == made
    place.crash()
    assert place.db.router("in>out") == made
    assert place.db.delete_router("in>out")
    assert not place.db.delete_router("in>out")
    place.crash()
    with pytest.raises(RouterNotFoundError):
        place.db.router("in>out")
    assert place.db.state("out").count == 0


def test_what_cannot_be_routed_is_refused_and_leaves_nothing(place: Place) -> None:
    with pytest.raises(TopicNotFoundError):
        place.db.put_router("r", source="nowhere", dest="out", create_source=False)
    with pytest.raises(InvalidRequestError, match="to itself"):
        place.db.put_router("r", source="in", dest="in")
    with pytest.raises(TopicNotFoundError):
        place.db.put_router("r", source="in", dest="out", create_dest=False)
    assert [state.topic for state in place.db.topics()] == ["in"]
    place.db.put_router("r", source="in", dest="out")
    with pytest.raises(TopicExistsIncompatibleError) as differs:
        place.db.put_router("r", source="in", dest="other")
    assert differs.value.detail == {"reason": "router_differs", "router": "r"}
    place.db.put_router("s", source="out", dest="far")
    with pytest.raises(RouterCycleError) as circle:
        place.db.put_router("back", source="far", dest="in")
    assert circle.value.detail == {"path": ["far", "in", "out", "far"]}
    with pytest.raises(TopicExistsIncompatibleError):
        place.db.put_router("s", source="nowhere", dest="out")
    assert [router.router for router in place.db.routers()] == ["r", "s"]
    assert [state.topic for state in place.db.topics()] == ["far", "in", "out"]


def test_a_source_that_is_not_there_is_made(place: Place) -> None:
    place.db.put_router("r", source="later", dest="out")
    place.db.append("later", {"data": 1})
    assert place.db.state("later").head_seq == 1
    assert place.db.router("r").source == "later"


@pytest.mark.parametrize("ends", ["goes on", "crash", "checkpoint and crash", "restart"])
def test_a_router_with_another_filter_goes_on_from_where_it_is(ends: str) -> None:
    place = Place(shards=3)
    place.db.put_router("r", source="in", dest="out", filter="old")
    place.db.append("in", [{"data": 1, "tag": "old"}, {"data": 2, "tag": "new"}])
    place.forward()
    place.db.append("in", [{"data": 3, "tag": "new"}])
    state = place.db.put_router("r", source="in", dest="out", filter="new", preserve_tag=False)
    assert (state.filter, state.source_seq, state.forwarded_total) == ("new", 2, 1)
    again = place.db.put_router("r", source="in", dest="out", filter="new", preserve_tag=False)
    assert again == state
    if "checkpoint" in ends:
        place.db.checkpoint()
    if "crash" in ends:
        place.crash()
    elif ends == "restart":
        place.restart()
    place.db.append("in", [{"data": 4, "tag": "old"}, {"data": 5, "tag": "new"}])
    place.forward()
    copies = [(record.data, record.tag) for record in place.db.diff("out").records]
    assert copies == [(1, "old"), (3, None), (5, None)]
    assert len(place.db.routers()) == 1


def test_an_exactly_once_router_keeps_its_rules(place: Place) -> None:
    rules: RouterKeywords = {"source": "in", "dest": "out", "guarantee": "exactly_once"}
    place.db.put_router("r", **rules)
    with pytest.raises(TopicExistsIncompatibleError) as differs:
        place.db.put_router("r", source="in", dest="out", guarantee="exactly_once", filter="x")
    assert differs.value.detail == {"reason": "router_differs", "router": "r"}


@pytest.mark.claims(354)
def test_a_destination_takes_copies_of_one_topic_only(place: Place) -> None:
    place.db.create("other")
    place.db.put_router("r", source="in", dest="out")
    with pytest.raises(TopicExistsIncompatibleError) as refused:
        place.db.put_router("s", source="other", dest="out")
    assert refused.value.detail is not None
    assert refused.value.detail["reason"] == "router_dest_fan_in"


def test_only_what_comes_after_the_definition_is_copied_with_all_it_has(place: Place) -> None:
    place.write("before")
    place.db.put_router("r", source="in", dest="out")
    place.db.append("in", {"data": {"a": 1}, "tag": "t", "node": "n", "meta": {"m": [1]}})
    place.forward()
    (source,) = place.db.diff("in", 1).records
    (copy,) = place.db.diff("out").records
    assert (copy.seq, copy.ts, copy.node, copy.tag) == (1, source.ts, "n", "t")
    assert (copy.data_json, copy.meta_json) == (source.data_json, source.meta_json)
    place.db.checkpoint()
    assert place.db.diff("out").records == [copy]
    assert place.db.router("r").forwarded_total == 1


def test_node_and_tag_are_left_behind_when_they_are_not_to_be_kept(place: Place) -> None:
    place.db.put_router(
        "r", source="in", dest="out", preserve_node=False, preserve_tag=False, filter="t*"
    )
    place.write(1, tag="t1", node="n")
    place.write(2, tag="u", node="n")
    place.write(3)
    place.forward()
    (copy,) = place.db.diff("out").records
    assert (copy.data, copy.tag, copy.node) == (1, None, None)


@pytest.mark.claims(353, 367)
def test_one_write_to_the_log_feeds_a_thousand_topics() -> None:
    place = Place(shards=2)
    for number in range(1_000):
        place.db.put_router(f"r{number:04d}", source="in", dest=f"out{number:04d}")
    wal = place.db.engine.core.wal
    assert wal is not None

    def written() -> tuple[int, int]:
        frames = sum(shard.counters.frames - shard.counters.groups for shard in wal.shards)
        return frames, sum(shard.counters.bytes_written for shard in wal.shards)

    before = written()
    place.write("x" * 50)
    one_write = written()
    place.forward()
    assert one_write[0] == before[0] + 1
    assert written() == one_write, "not a byte more for a thousand copies"
    assert place.db.engine.core.counters.records_forwarded == 1_000
    assert all(place.db.state(f"out{n:04d}").count == 1 for n in range(0, 1_000, 37))


@pytest.mark.claims(371)
def test_a_copy_wakes_whoever_waits_at_the_destination(place: Place) -> None:
    place.db.put_router("r", source="in", dest="out")
    woken: list[str] = []
    topic = place.db.engine.topic("out")
    topic.waiters.add(lambda: woken.append("reader"))
    place.db.engine.core.on_update = lambda news: woken.append(news.name)
    place.write(1)
    assert woken == ["in"]
    place.forward()
    assert woken == ["in", "reader", "out"]


def test_a_chain_carries_records_to_its_end(place: Place) -> None:
    place.db.put_router("first", source="in", dest="middle")
    place.db.put_router("second", source="middle", dest="out", guarantee="exactly_once")
    place.write(1, 2, 3)
    place.forward()
    assert place.datas("out") == [1, 2, 3]


def test_records_in_a_circle_are_copied_on_eight_times(place: Place) -> None:
    place.db.put_router("go", source="in", dest="out")
    place.db.put_router("back", source="out", dest="in", allow_cycle=True)
    place.write("round")
    place.forward()
    hops = [(record.meta or {}).get("$hops", 0) for record in place.db.diff("in").records]
    hops += [(record.meta or {}).get("$hops", 0) for record in place.db.diff("out").records]
    assert sorted(hops) == list(range(9)), "the record itself and eight copies"


def test_a_full_destination_that_refuses_holds_the_router_until_there_is_room(
    place: Place,
) -> None:
    place.db.create("out", cap_records=3, discard="reject")
    place.db.put_router("r", source="in", dest="out")
    place.write(1, 2, 3, 4, 5)
    place.forward()
    assert place.datas("out") == [1, 2, 3]
    state = place.db.router("r")
    assert (state.held, state.source_seq, state.lag) == (True, 3, 2)
    place.db.delete("out", before_seq=3)
    place.db.engine.copy_rounds.run_dry()
    assert place.datas("out") == [3, 4, 5]
    assert not place.db.router("r").held


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_what_the_source_lost_before_it_was_copied_is_told_as_source_trim(
    place: Place, guarantee: str
) -> None:
    place.db.create("in", cap_records=3)
    place.db.put_router("r", source="in", dest="out", guarantee=guarantee)
    place.write(0)
    place.forward()
    place.write(*range(1, 9))
    place.forward()
    diff = place.db.diff("out", 1)
    assert diff.tombstone is not None
    assert (diff.tombstone.reason, diff.tombstone.gap_from, diff.tombstone.gap_to) == (
        "source_trim",
        2,
        6,
    )
    assert [(record.seq, record.data) for record in diff.records] == [(7, 6), (8, 7), (9, 8)]
    for again in (place.db.checkpoint, place.restart, place.crash):
        again()
        assert place.db.diff("out", 1) == diff


def test_exactly_once_gives_every_source_seq_its_place_and_takes_no_other_record(
    place: Place,
) -> None:
    place.db.put_router("r", source="in", dest="out", filter="a", guarantee="exactly_once")
    for number in range(6):
        place.write(number, tag="a" if number % 2 else "b")
    place.db.delete("in", before_seq=3)
    place.forward()
    assert [(r.seq, r.data) for r in place.db.diff("out").records] == [(4, 3), (6, 5)]
    with pytest.raises(TopicExistsIncompatibleError) as refused:
        place.write("own", topic="out")
    assert refused.value.detail == {"reason": "router_dest_exactly_once", "dest": "out"}


def test_a_topic_that_is_dropped_takes_its_routers_and_leaves_its_copies(place: Place) -> None:
    place.db.put_router("r", source="in", dest="out")
    place.db.put_router("s", source="out", dest="far")
    place.write(1, 2)
    place.forward()
    assert place.db.drop("in")
    assert [router.router for router in place.db.routers()] == ["s"]
    place.crash()
    assert [router.router for router in place.db.routers()] == ["s"]
    place.forward()
    assert place.datas("out") == [1, 2], "their source is gone, so they had to be made safe"
    assert place.datas("far")[:2] == [1, 2]
    assert place.db.drop("far")
    assert place.db.routers() == []


def test_a_router_made_again_is_not_taken_by_a_second_delete_of_the_first(place: Place) -> None:
    definition: RouterKeywords = {"source": "in", "dest": "out"}
    place.db.put_router("r", **definition)
    routers = place.db.engine.routers

    def put_again(_: object) -> None:
        routers.put("r", router_settings(definition))

    with place.holding():
        first, second = routers.delete("r"), routers.delete("r")
        first.on_done = put_again
    assert second.done
    place.write("kept")
    place.forward()
    assert place.datas("out") == ["kept"]
    assert [router.router for router in place.db.routers()] == ["r"]
    place.db.delete_router("r")
    place.write("not copied")
    place.forward()
    assert place.datas("out") == ["kept"]
    place.restart()
    assert place.db.routers() == []


def test_a_router_put_twice_at_once_is_told_of_when_the_log_has_it(place: Place) -> None:
    definition: RouterKeywords = {"source": "in", "dest": "out"}
    routers = place.db.engine.routers
    with place.holding():
        first, second = (routers.put("r", router_settings(definition)) for _ in range(2))
        assert not first.done
        assert not second.done, "a crash could still take it"
    assert (first.answer()[1], second.answer()[1]) == (True, False)
