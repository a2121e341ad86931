"""Routers over a real socket: defined, looked at, listed, removed; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.server.raw_http import Answer, Events, RawHttp
from tests.server.running_server import RunningServer, eventually, running, settings

OWNER, READER, NEIGHBOUR = "owner-secret", "reader-secret", "neighbour-secret"


def put(http: RawHttp, router: str, **definition: Any) -> Answer:
    return http.ask("PUT", f"/v0/routers/{router}", definition)


def datas(http: RawHttp, topic: str) -> list[Any]:
    return [record["data"] for record in http.diff(topic).json["records"]]


def test_a_router_is_made_looked_at_listed_and_removed(http: RawHttp, topic: str) -> None:
    source, dest, router = f"{topic}.in", f"{topic}.out", f"{topic}.in>out"
    http.put(source)
    made = put(http, router, source=source, dest=dest)
    assert made.status == 201
    found = made.json
    assert found.pop("performance").keys() == {"server_total_ms"}
    assert found == {
        "router": router,
        "created": True,
        "source": source,
        "dest": dest,
        "preserve_node": True,
        "preserve_tag": True,
        "create_dest": True,
        "filter": None,
        "allow_cycle": False,
        "guarantee": "at_least_once",
    }
    again = put(http, router, source=source, dest=dest)
    assert (again.status, again.json["created"]) == (200, False)
    http.write(source, 1, 2, 3)
    eventually(lambda: datas(http, dest) == [1, 2, 3])
    seen = http.get(f"/v0/routers/{router}").json
    assert (seen["forwarded_total"], seen["lag"], seen["source_seq"]) == (3, 0, 3)
    assert (seen["held"], seen["dest"]) == (False, dest)
    listed = http.get(f"/v0/routers?prefix={topic}").json["routers"]
    assert [each["router"] for each in listed] == [router]
    assert http.get(f"/v0/routers?dest={source}").json["routers"] == []
    assert http.get(f"/v0/routers?source={source}").json["routers"] == listed
    assert http.ask("DELETE", f"/v0/routers/{router}").json["deleted"] is True
    assert http.ask("DELETE", f"/v0/routers/{router}").json["deleted"] is False
    gone = http.get(f"/v0/routers/{router}")
    assert (gone.status, gone.code) == (404, "router_not_found")
    assert datas(http, dest) == [1, 2, 3], "what was copied stays"


def test_routers_are_listed_page_by_page(http: RawHttp, topic: str) -> None:
    http.put(f"{topic}.in")
    names = [f"{topic}.r{number}" for number in range(5)]
    for number, name in enumerate(names):
        put(http, name, source=f"{topic}.in", dest=f"{topic}.out{number}")
    found: list[str] = []
    cursor = ""
    while True:
        page = http.get(f"/v0/routers?prefix={topic}&page_size=2{cursor}").json
        found += [router["router"] for router in page["routers"]]
        if "next_cursor" not in page:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == names


@pytest.mark.claims(354)
def test_circles_fan_in_and_nonsense_are_refused_with_their_reasons(
    http: RawHttp, topic: str
) -> None:
    one, two, three = f"{topic}.1", f"{topic}.2", f"{topic}.3"
    http.put(one)
    http.put(three)
    put(http, f"{topic}.a", source=one, dest=two)
    circle = put(http, f"{topic}.b", source=two, dest=one)
    assert (circle.status, circle.code) == (409, "router_cycle")
    assert circle.json["error"]["detail"]["path"] == [two, one, two]
    fan_in = put(http, f"{topic}.c", source=three, dest=two)
    assert (fan_in.status, fan_in.code) == (409, "topic_exists_incompatible")
    assert fan_in.json["error"]["detail"]["reason"] == "router_dest_fan_in"
    nowhere = f"{topic}.nowhere"
    missing = put(http, f"{topic}.d", source=nowhere, dest=f"{topic}.4", create_source=False)
    assert (missing.status, missing.code) == (404, "topic_not_found")
    assert missing.json["error"]["detail"] == {"topic": nowhere}
    for wrong in (
        {"source": one},
        {"source": one, "dest": two, "more": 1},
        {"source": one, "dest": two, "guarantee": "twice"},
        {"source": one, "dest": "no/name"},
        {"source": one, "dest": one},
        {"source": one, "dest": two, "filter": "*x*"},
    ):
        answer = put(http, f"{topic}.e", **wrong)
        assert (answer.status, answer.code) == (400, "invalid_request"), wrong
    assert put(http, "bad%20name", source=one, dest=two).status == 400
    put(http, f"{topic}.x", source=one, dest=f"{topic}.only", guarantee="exactly_once")
    own = http.write(f"{topic}.only", 1)
    assert (own.status, own.code) == (409, "topic_exists_incompatible")
    assert own.json["error"]["detail"]["reason"] == "router_dest_exactly_once"


def test_dropping_a_topic_tells_which_routers_went_with_it(http: RawHttp, topic: str) -> None:
    http.put(f"{topic}.in")
    put(http, f"{topic}.b", source=f"{topic}.in", dest=f"{topic}.x")
    put(http, f"{topic}.a", source=f"{topic}.in", dest=f"{topic}.y")
    put(http, f"{topic}.c", source=f"{topic}.x", dest=f"{topic}.z")
    dropped = http.ask("DELETE", f"/v0/topics/{topic}.in").json
    assert (dropped["deleted"], dropped["routers_removed"]) == (True, [f"{topic}.a", f"{topic}.b"])
    left = http.get(f"/v0/routers?prefix={topic}").json["routers"]
    assert [router["router"] for router in left] == [f"{topic}.c"]


@pytest.mark.claims(371)
def test_a_stream_over_the_destination_is_given_the_copies(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(f"{topic}.in")
    put(http, f"{topic}.r", source=f"{topic}.in", dest=f"{topic}.out", filter="keep*")
    watch = {"topics": {f"{topic}.out": {"from_seq": 0}}}
    opened = http.ask("POST", "/v0/watch", watch).json
    with server.talk() as connection:
        stream = Events(connection, opened["wid"])
        http.write_records(
            f"{topic}.in", {"data": 1, "tag": "keep.1"}, {"data": 2}, {"data": 3, "tag": "keep.3"}
        )
        assert [record["data"] for record in stream.records(2)] == [1, 3]


def test_routers_and_their_lag_are_in_the_metrics(http: RawHttp, topic: str) -> None:
    http.put(f"{topic}.in")
    put(http, f"{topic}.r", source=f"{topic}.in", dest=f"{topic}.out")
    http.write(f"{topic}.in", 1)
    eventually(lambda: datas(http, f"{topic}.out") == [1])
    found = http.get("/v0/metrics", accept="application/json").json["metrics"]
    assert found["headwater_routers"] >= 1
    assert found["headwater_records_forwarded"] >= 1
    assert found[f"headwater_router_lag{{router={topic}.r}}"] == 0
    assert found[f"headwater_router_held{{router={topic}.r}}"] == 0


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RunningServer]:
    keys = (f"{OWNER}:owner:mine.", f"{READER}:read", f"{NEIGHBOUR}:owner:theirs.")
    with running(tmp_path / "data", settings(api_keys=keys)) as found:
        yield found


def test_a_key_routes_only_between_topics_it_may_name(guarded: RunningServer) -> None:
    with (
        guarded.talk(key=OWNER) as owner,
        guarded.talk(key=READER) as reader,
        guarded.talk(key=NEIGHBOUR) as neighbour,
    ):
        owner.put("mine.in")
        neighbour.put("theirs.in")
        ends = {"source": "mine.in", "dest": "mine.out"}
        assert put(reader, "mine.r", **ends).status == 403
        assert put(owner, "other.r", **ends).status == 403
        assert put(owner, "mine.r", source="mine.in", dest="theirs.out").status == 403
        assert put(owner, "mine.r", source="theirs.in", dest="mine.out").status == 403
        assert put(owner, "mine.r", **ends).status == 201
        assert neighbour.get("/v0/routers").json["routers"] == []
        assert neighbour.get("/v0/routers/mine.r").status == 403
        assert neighbour.ask("DELETE", "/v0/routers/mine.r").status == 403
        assert reader.ask("DELETE", "/v0/routers/mine.r").status == 403
        assert len(reader.get("/v0/routers").json["routers"]) == 1
        assert owner.ask("DELETE", "/v0/routers/mine.r").json["deleted"] is True


def test_a_router_put_again_with_another_filter_goes_on(http: RawHttp, topic: str) -> None:
    source, dest, router = f"{topic}.in", f"{topic}.out", f"{topic}.r"
    assert put(http, router, source=source, dest=dest, filter="a").status == 201
    http.write_records(source, {"data": 1, "tag": "a"}, {"data": 2, "tag": "b"})
    eventually(lambda: http.get(f"/v0/routers/{router}").json["lag"] == 0)
    changed = put(http, router, source=source, dest=dest, filter="b")
    assert (changed.status, changed.json["created"], changed.json["filter"]) == (200, False, "b")
    same = put(http, router, source=source, dest=dest, filter="b")
    assert (same.status, same.json["created"]) == (200, False)
    http.write_records(source, {"data": 3, "tag": "a"}, {"data": 4, "tag": "b"})
    found = http.diff(dest, consistency="strong").json["records"]
    assert [record["data"] for record in found] == [1, 4]
    elsewhere = put(http, router, source=source, dest=f"{topic}.else")
    assert (elsewhere.status, elsewhere.json["error"]["detail"]["reason"]) == (
        409,
        "router_differs",
    )


def test_a_strong_read_has_what_was_written_before_it_over_any_number_of_routers(
    http: RawHttp, topic: str
) -> None:
    names = [f"{topic}.{number}" for number in range(4)]
    for source, dest in pairwise(names):
        put(http, f"{source}>{dest}", source=source, dest=dest)
    for number in range(50):
        http.write(names[0], number)
        found = http.diff(names[-1], number, consistency="strong").json["records"]
        assert [record["data"] for record in found] == [number]
    assert http.diff(names[0], consistency="exact").status == 400
