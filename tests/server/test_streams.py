"""Watches and server-sent events over a real socket."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.server.raw_http import Events, RawHttp
from tests.server.running_server import RunningServer
from tests.server.watches import as_id, cursor, open_watch, stream, watching


def test_opening_a_watch_tells_where_each_topic_stands(http: RawHttp, topic: str) -> None:
    http.put(topic, cap_records=2)
    http.write(topic, 1, 2, 3)
    answer = http.ask("POST", "/v0/watch", {"topics": {topic: {"from_seq": 1}}})
    assert answer.status == 200
    found = answer.json
    assert found["stream_url"] == f"/v0/watch/{found['wid']}"
    assert found["session_ttl_ms"] == 300_000
    assert found["topics"] == {topic: {"from_seq": 1, "head_seq": 3, "earliest_seq": 2}}
    assert found["performance"]["server_total_ms"] > 0
    tail = http.ask("POST", "/v0/watch", {"topics": {topic: {"tail": True}}}).json
    assert tail["topics"][topic]["from_seq"] == 3


@pytest.mark.claims(370)
def test_a_stream_begins_as_the_contract_says(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.write(topic, "a")
    with stream(server, open_watch(http, {topic: {}})) as events:
        assert events.headers["content-type"] == "text/event-stream"
        assert events.headers["cache-control"] == "no-store"
        assert events.headers["x-accel-buffering"] == "no"
        assert "content-length" not in events.headers
        assert events.frame() == ["retry: 2000"]
        record = events.next()
        assert record.kind == "record"
        assert cursor(record.id) == {topic: 1}
        (only,) = record.data.pop("records")
        assert (only["$seq"], only["data"]) == (1, "a")
        assert record.data == {"topic": topic, "from_seq": 0, "to_seq": 1, "head_seq": 1}
        caught_up = events.next()
        assert (caught_up.kind, caught_up.data["topic"]) == ("caught-up", topic)
        assert caught_up.data["seq"] == 1
        http.write(topic, "b")
        assert events.next().data["records"][0]["data"] == "b"


@pytest.mark.claims(364)
def test_one_stream_follows_many_topics_with_one_cursor(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    names = [f"{topic}.{n}" for n in range(5)]
    for name in names:
        http.write(name, name)
    with watching(server, {name: {} for name in names}) as events:
        seen = events.records(5)
        assert sorted(record["data"] for record in seen) == names
        for name in names:
            http.write(name, "more")
        events.records(5)
        http.write(names[0], "last")
        last = events.until("record")[-1]
        assert cursor(last.id) == {**dict.fromkeys(names, 2), names[0]: 3}


def test_streams_that_get_the_same_record_each_have_their_own_cursor(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    other = f"{topic}.other"
    http.write(other, 1)
    http.write(topic, 1)
    both = {topic: {"tail": True}, other: {"tail": True}}
    one = {topic: {"tail": True}}
    wishes: list[dict[str, Any]] = [one, both, one, both]
    with ExitStack() as ends:
        streams = [ends.enter_context(watching(server, wish)) for wish in wishes]
        for events, wish in zip(streams, wishes, strict=True):
            for _ in wish:
                events.until("caught-up")
        http.write(topic, 2)
        for events, wish in zip(streams, wishes, strict=True):
            record = events.until("record")[-1]
            assert cursor(record.id) == ({topic: 2} if wish is one else {topic: 2, other: 1})


@pytest.mark.claims(362)
def test_a_stream_resumes_where_its_last_event_says(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.write(topic, *range(10))
    wid = open_watch(http, {topic: {}}, limit=3)
    with stream(server, wid) as events:
        first = events.until("record")[-1]
        events.until("caught-up")
    assert cursor(first.id) == {topic: 3}
    with stream(server, wid, first.id) as again:
        assert [r["$seq"] for r in again.records(7)] == [4, 5, 6, 7, 8, 9, 10]


def test_an_id_can_go_back_and_never_beyond_what_was_sent(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.write(topic, *range(10))
    wid = open_watch(http, {topic: {"from_seq": 4}})
    with stream(server, wid, as_id({topic: 9})) as events:
        assert [r["$seq"] for r in events.records(6)] == [5, 6, 7, 8, 9, 10]
    with stream(server, wid, as_id({topic: 2, "other": 7})) as events:
        assert events.records(8)[0]["$seq"] == 3
    with stream(server, wid, as_id({topic: 9})) as events:
        assert events.records(1)[0]["$seq"] == 10
    with stream(server, wid) as events:
        assert events.records(6)[0]["$seq"] == 5, "what nobody confirmed is sent again"


@pytest.mark.parametrize("text", ["%%%", "e30x", as_id({"a": -1}), "W10", "x" * 100_000])
def test_an_id_that_is_not_ours_is_refused(http: RawHttp, topic: str, text: str) -> None:
    http.put(topic)
    wid = open_watch(http, {topic: {}})
    answer = http.get(f"/v0/watch/{wid}", **{"last-event-id": text})
    assert (answer.status, answer.code) == (400, "invalid_request")


def test_an_id_of_256_topics_with_long_names_fits_a_request(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    names = [f"{n:03}".ljust(250, "x") for n in range(256)]
    for name in names:
        http.put(name, durability="ephemeral")
        http.write(name, 1)
    wid = open_watch(http, {name: {} for name in names})
    with stream(server, wid) as events:
        events.records(256)
        http.write(names[0], 2)
        last = events.until("record")[-1]
        assert len(cursor(last.id)) == 256
    http.write(names[1], 3)
    with stream(server, wid, last.id) as events:
        assert [r["data"] for r in events.records(1)] == [3]
    for name in names:
        http.ask("DELETE", f"/v0/topics/{name}")


def test_a_prefix_takes_in_topics_that_are_there_and_those_to_come(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.write(f"{topic}.old", "old")
    http.write(f"{topic}x", "other")
    wid = open_watch(http, {f"{topic}.*": {}})
    http.write(f"{topic}.between", "between")
    with stream(server, wid) as events:
        assert {r["data"] for r in events.records(2)} == {"old", "between"}
        http.write(f"{topic}.new", "new")
        assert events.records(1)[0]["data"] == "new"
        http.ask("DELETE", f"/v0/topics/{topic}.new")
        assert events.until("topic-deleted")[-1].data == {"topic": f"{topic}.new"}
        http.write(f"{topic}.new", "again")
        assert events.records(1)[0]["data"] == "again"
        http.write(f"{topic}.last", "last")
        last = events.until("record")[-1]
    with stream(server, wid, last.id) as events:
        http.write(f"{topic}.old", "end")
        assert [r["data"] for r in events.records(1)] == ["end"]


def test_a_prefix_can_begin_at_the_end_of_what_is_there(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.write(f"{topic}.a", 1)
    with watching(server, {f"{topic}.*": {"tail": True}}) as events:
        events.until("caught-up")
        http.write(f"{topic}.b", 2)
        http.write(f"{topic}.a", 3)
        assert sorted(r["data"] for r in events.records(2)) == [2, 3]


def test_a_missing_topic_is_refused_unless_the_watch_is_lenient(http: RawHttp, topic: str) -> None:
    http.put(topic)
    wanted: dict[str, Any] = {"topics": {topic: {}, f"{topic}.none": {}}}
    refused = http.ask("POST", "/v0/watch", wanted)
    assert (refused.status, refused.code) == (404, "topic_not_found")
    allowed = http.ask("POST", "/v0/watch?lenient=true", wanted).json
    assert list(allowed["topics"]) == [topic]
    assert allowed["missing"] == [f"{topic}.none"]


@pytest.mark.parametrize(
    "options",
    [
        {"topics": {}}, {"topics": {f"t{n}": {} for n in range(257)}}, {"topics": {"a/b": {}}},
        {"topics": {"a**": {}}}, {"topics": {"-*": {}}}, {"topics": {"a": {"other": 1}}},
        {"topics": {"a": {"from_seq": -1}}}, {"topics": {"a": {}}, "consistency": "sometimes"},
        {"topics": {"a": {}}, "match": "a*b*"}, {"topics": {"a": {}}, "extra": 1}, {},
    ],
)  # fmt: skip
def test_a_watch_that_is_not_clear_is_refused(http: RawHttp, options: dict[str, Any]) -> None:
    http.put("a")
    answer = http.ask("POST", "/v0/watch", options)
    assert (answer.status, answer.code) == (400, "invalid_request")


@pytest.mark.claims(365)
def test_fields_filters_and_nodes_work_as_in_a_read(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.write_records(
        topic,
        {"data": 1, "tag": "a", "meta": {"m": 1}},
        {"data": 2, "tag": "b"},
        {"data": 3, "tag": "a", "node": "me"},
        {"data": 4, "tag": "a"},
    )
    options = {"match": "a", "node": "me", "include_data": False, "include_tags": True}
    with watching(server, {topic: {}}, **options) as events:
        first, last = events.records(2)
        assert (first["$seq"], first["$tag"], first["meta"]) == (1, "a", {"m": 1})
        assert "data" not in first
        assert last["$seq"] == 4
    with watching(server, {topic: {}}, include_meta=False, limit=2) as events:
        batch = events.until("record")[-1].data
        assert (len(batch["records"]), batch["to_seq"], batch["head_seq"]) == (2, 2, 4)
        assert "meta" not in batch["records"][0]


def test_a_loss_is_told_where_it_happened(server: RunningServer, http: RawHttp, topic: str) -> None:
    http.put(topic, cap_records=2)
    http.write(topic, *range(5))
    with watching(server, {topic: {}}) as events:
        lost = events.until("tombstone")[-1].data
        assert (lost["topic"], lost["gap_from"], lost["gap_to"]) == (topic, 1, 3)
        assert (lost["reason"], lost["missed_estimate"]) == ("cap", 3)
        assert [r["$seq"] for r in events.records(2)] == [4, 5]


def test_a_dropped_topic_is_told_to_those_who_were_away_too(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.write(topic, *range(5))
    http.write(f"{topic}.keeps", 1)
    wid = open_watch(http, {topic: {}, f"{topic}.keeps": {}})
    with stream(server, wid) as events:
        last = events.until("record")[-1]
    http.ask("DELETE", f"/v0/topics/{topic}")
    http.write(topic, *range(20))
    with stream(server, wid, last.id) as events:
        assert events.until("topic-deleted")[-1].data == {"topic": topic}
        http.write(f"{topic}.keeps", 2)
        assert events.records(2)[-1]["data"] == 2


def test_payloads_with_line_breaks_cannot_forge_events(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    nasty = '[1,\n\ndata: {"forged":1}\r\n\r\nevent: record'
    tidy = b'{"records":[{"data":[1,\r\n\n\r"\\n\\nevent: forged\\ndata: x"]}]}'
    assert http.ask("POST", f"/v0/topics/{topic}", nasty).status == 400
    assert http.ask("POST", f"/v0/topics/{topic}", tidy).status == 201
    with watching(server, {topic: {}}) as events:
        found = [event.kind for event in events.until("caught-up")]
        assert found == ["record", "caught-up"]


def test_a_heartbeat_comes_only_when_there_is_nothing_else(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic)
    with watching(server, {topic: {}}, heartbeat_ms=1) as events:
        events.until("caught-up")
        beat = events.next()
        assert beat.kind == ""
        assert beat.data.startswith(": hb ")
        assert int(beat.data.removeprefix(": hb ")) > 1_600_000_000_000
        watch = next(iter(server.app.sessions._by_id.values()))
        assert watch.heartbeat_us >= 1_000_000, "clamped"


@pytest.mark.parametrize("accept", ["application/json", "text/html", "image/*"])
def test_a_client_that_does_not_want_a_stream_gets_none(
    http: RawHttp, topic: str, accept: str
) -> None:
    http.put(topic)
    wid = open_watch(http, {topic: {}})
    answer = http.get(f"/v0/watch/{wid}", accept=accept)
    assert (answer.status, answer.code) == (406, "not_acceptable")


def test_an_unknown_watch_is_not_found(http: RawHttp) -> None:
    answer = http.get("/v0/watch/nonsense")
    assert (answer.status, answer.code) == (404, "not_found")


def test_a_stream_behind_a_slow_request_begins_after_its_answer(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic)
    wid = open_watch(http, {topic: {}})
    wait = http.request("POST", f"/v0/topics/{topic}/diff", {"wait_ms": 100})
    http.send(wait + http.request("GET", f"/v0/watch/{wid}"))
    assert http.answer().status == 200
    events = Events.__new__(Events)
    events.connection = http
    assert http.head()[0] == 200, "begun when the read before it was answered"
    assert events.frame() == ["retry: 2000"]


def test_what_stands_behind_a_stream_does_not_disturb_it(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic)
    wid = open_watch(http, {topic: {}})
    with stream(server, wid) as events:
        events.until("caught-up")
        events.connection.send(http.request("GET", "/v0/health") * 3)
        http.write(topic, 1)
        assert [event.kind for event in events.until("record")] == ["record"]


def test_head_of_a_stream_does_not_open_one(http: RawHttp, topic: str) -> None:
    http.put(topic)
    wid = open_watch(http, {topic: {}})
    answer = http.ask("HEAD", f"/v0/watch/{wid}")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert http.get("/v0/health").status == 200


def test_deleted_records_are_not_sent_to_those_who_come_later(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.write_records(topic, {"data": "secret", "tag": "s"}, {"data": "open"})
    with watching(server, {topic: {}}) as first:
        assert len(first.records(2)) == 2
        http.ask("POST", f"/v0/topics/{topic}/delete", {"match": "s"})
        with watching(server, {topic: {}}) as second:
            assert [r["data"] for r in second.records(1)] == ["open"]
