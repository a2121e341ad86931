"""POST .../diff and GET .../arrow over a real socket."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from types import ModuleType
from typing import Any

import pyarrow.ipc
import pytest

from headwater.engine.topics import arrow
from tests.server.raw_http import Answer, RawHttp
from tests.server.running_server import PATIENCE_S, RunningServer, eventually


def seqs(answer: Answer) -> list[int]:
    return [record["$seq"] for record in answer.json["records"]]


def test_an_answer_has_everything_the_contract_names(http: RawHttp, topic: str) -> None:
    http.write(topic, "a", "b", "c")
    answer = http.diff(topic, 1, limit=1).json
    performance = answer.pop("performance")
    assert {"server_total_ms", "records_scanned", "cold_segments_read"} <= set(performance)
    (record,) = answer.pop("records")
    assert record["data"] == "b"
    assert answer == {
        "topic": topic, "next_from_seq": 2, "head_seq": 3, "earliest_seq": 1, "caught_up": False,
        "tombstone": None, "lag": 1,
    }  # fmt: skip
    last = http.diff(topic, 2).json
    assert (last["caught_up"], last["lag"], last["next_from_seq"]) == (True, 0, 3)


@pytest.mark.claims(355)
def test_a_limit_is_clamped_above_and_refused_below_one(http: RawHttp, topic: str) -> None:
    http.write(topic, *range(1_500))
    assert len(seqs(http.diff(topic))) == 256
    assert len(seqs(http.diff(topic, limit=5_000))) == 1_000
    for limit in (0, -7):
        refused = http.diff(topic, limit=limit)
        assert (refused.status, refused.code) == (400, "invalid_request")
        assert f"limit must be 1 or more, not {limit}" in refused.json["error"]["message"]


def test_a_batch_is_bounded_in_bytes_but_has_at_least_one_record(http: RawHttp, topic: str) -> None:
    for _ in range(3):
        http.write(topic, "x" * 100_000)
    assert seqs(http.diff(topic, max_batch_bytes=1)) == [1]
    assert seqs(http.diff(topic, max_batch_bytes=250_000)) == [1, 2]
    assert seqs(http.diff(topic)) == [1, 2, 3]


def test_tags_are_shown_only_when_asked_and_meta_can_be_left_out(http: RawHttp, topic: str) -> None:
    http.write_records(topic, {"data": 1, "tag": "t", "meta": {"m": 1}})
    (plain,) = http.diff(topic).json["records"]
    assert ("$tag" in plain, "meta" in plain) == (False, True)
    (other,) = http.diff(topic, include_tags=True, include_meta=False).json["records"]
    assert (other["$tag"], "meta" in other) == ("t", False)


def test_own_records_are_skipped_and_still_move_the_cursor(http: RawHttp, topic: str) -> None:
    http.write_records(topic, *({"data": n, "node": f"n{n % 3}"} for n in range(6)))
    assert seqs(http.diff(topic, node="n0")) == [2, 3, 5, 6]
    both = http.diff(topic, node=["n0", "n1"])
    assert seqs(both) == [3, 6]
    everything = http.diff(topic, node=["n0", "n1", "n2"]).json
    assert (everything["records"], everything["next_from_seq"]) == ([], 6)
    assert everything["caught_up"] is True
    http.put(topic, dedupe_node=False)
    assert len(seqs(http.diff(topic, node="n0"))) == 6


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("red", [1, 4]),
        ("r*", [1, 4, 5]),
        (["tag", "Eq", "blue"], [2]),
        (["tag", "Glob", "*"], [1, 2, 4, 5]),
        ("none", []),
    ],
)
def test_a_read_can_be_filtered_by_tag(
    http: RawHttp, topic: str, match: Any, expected: list[int]
) -> None:
    tags = ("red", "blue", None, "red", "rust")
    http.write_records(topic, *({"data": 1, "tag": tag} for tag in tags))
    found = http.diff(topic, match=match)
    assert seqs(found) == expected
    assert found.json["next_from_seq"] == 5


@pytest.mark.parametrize(
    "options",
    [
        {"from_seq": -1}, {"from_seq": 2**53}, {"from_seq": "1"}, {"limit": "many"}, {"more": 1},
        {"match": ["tag", "Eq"]}, {"match": ""}, {"wait_ms": None}, {"node": 7}, {"node": [7]},
        {"include_tags": "yes"},
    ],
)  # fmt: skip
def test_a_read_that_is_not_clear_is_refused(
    http: RawHttp, topic: str, options: dict[str, Any]
) -> None:
    http.put(topic)
    answer = http.ask("POST", f"/v0/topics/{topic}/diff", options)
    assert (answer.status, answer.code) == (400, "invalid_request")


def test_an_empty_body_reads_from_the_beginning(http: RawHttp, topic: str) -> None:
    http.write(topic, 1)
    assert seqs(http.ask("POST", f"/v0/topics/{topic}/diff")) == [1]


def test_a_loss_that_crosses_the_cursor_is_told_once(http: RawHttp, topic: str) -> None:
    http.put(topic, cap_records=3)
    http.write(topic, *range(10))
    lost = http.diff(topic, 2).json
    assert lost["tombstone"] == {
        "gap_from": 3, "gap_to": 7, "reason": "cap", "missed_estimate": 5,
        "earliest_seq": 8, "head_seq": 10,
    }  # fmt: skip
    assert [record["$seq"] for record in lost["records"]] == [8, 9, 10]
    assert http.diff(topic, lost["next_from_seq"]).json["tombstone"] is None


def test_a_cursor_beyond_a_topic_made_again_is_told_so(http: RawHttp, topic: str) -> None:
    http.write(topic, *range(10))
    http.ask("DELETE", f"/v0/topics/{topic}")
    http.write(topic, "new")
    found = http.diff(topic, 10).json
    assert found["tombstone"]["reason"] == "recreated"
    assert [record["data"] for record in found["records"]] == ["new"]
    assert found["next_from_seq"] == 1


# -- waiting


def waiting_read(server: RunningServer, topic: str, **options: Any) -> Any:
    """Ask in another thread; returns a function that gives the answer."""
    found: list[Answer] = []

    def read() -> None:
        with server.talk() as other:
            found.append(other.diff(topic, **options))

    thread = threading.Thread(target=read)
    thread.start()

    def result() -> Answer:
        thread.join(20)
        return found[0]

    return result


def waiters(server: RunningServer, topic: str) -> int:
    return int(server.inside(lambda: len(server.app.backend.engine.topic(topic).waiters)))


def wait_for_waiters(server: RunningServer, topic: str, count: int = 1) -> None:
    eventually(lambda: waiters(server, topic) >= count)


def test_a_waiting_read_is_woken_by_a_write(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic)
    result = waiting_read(server, topic, wait_ms=20_000)
    wait_for_waiters(server, topic)
    http.write(topic, "news")
    found = result().json
    assert [record["data"] for record in found["records"]] == ["news"]
    assert found["performance"]["server_total_ms"] < 20_000


def test_a_waiting_read_gives_up_when_its_time_is_over(http: RawHttp, topic: str) -> None:
    http.put(topic)
    found = http.diff(topic, wait_ms=50).json
    assert (found["records"], found["caught_up"]) == ([], True)
    assert found["performance"]["server_total_ms"] >= 50


def test_a_read_with_something_to_tell_does_not_wait(http: RawHttp, topic: str) -> None:
    http.write(topic, 1)
    assert seqs(http.diff(topic, wait_ms=30_000)) == [1]


def test_dropping_the_topic_ends_the_wait(server: RunningServer, http: RawHttp, topic: str) -> None:
    http.put(topic)
    result = waiting_read(server, topic, wait_ms=20_000)
    wait_for_waiters(server, topic)
    http.ask("DELETE", f"/v0/topics/{topic}")
    assert result().status in (200, 404)


def test_a_reader_that_leaves_is_not_waited_for(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic)
    with server.talk() as other:
        other.send(other.request("POST", f"/v0/topics/{topic}/diff", {"wait_ms": 30_000}))
        wait_for_waiters(server, topic)
    eventually(lambda: not waiters(server, topic))


# -- Arrow


def table(answer: Answer) -> Any:
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    return pyarrow.ipc.open_stream(answer.body).read_all()


def test_records_can_be_read_as_arrow(http: RawHttp, topic: str) -> None:
    http.write_records(
        topic, {"data": {"a": 1}, "tag": "t", "node": "n", "meta": {"m": "é"}}, {"data": None}
    )
    answer = http.get(f"/v0/topics/{topic}/arrow")
    found = table(answer)
    assert found.column_names == ["topic", "seq", "ts", "node", "tag", "data", "meta"]
    first, second = found.to_pylist()
    assert (first["topic"], first["seq"], first["node"], first["tag"]) == (topic, 1, "n", "t")
    assert (first["data"], first["meta"]) == ('{"a": 1}', '{"m": "\\u00e9"}')
    assert (second["data"], second["meta"], second["tag"]) == ("null", None, None)
    assert answer.headers["x-caught-up"] == "true"


def test_the_server_answers_others_while_arrow_is_loaded_for_the_first_who_asks(
    server: RunningServer, http: RawHttp, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def load_slowly(name: str) -> ModuleType:
        begun.set()
        assert go_on.wait(PATIENCE_S), "nobody else was answered meanwhile"
        return import_module(name)

    monkeypatch.setattr(arrow, "import_module", load_slowly)
    arrow._load.cache_clear()
    http.write(topic, 1)
    with server.talk() as other, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(other.get, f"/v0/topics/{topic}/arrow")
        try:
            assert begun.wait(PATIENCE_S)
            assert seqs(http.diff(topic)) == [1]
            assert not asked.done()
        finally:
            go_on.set()
        assert table(asked.result(PATIENCE_S))["seq"].to_pylist() == [1]


def test_a_range_of_arrow_is_open_below_and_closed_above(http: RawHttp, topic: str) -> None:
    http.write(topic, *range(3_000))
    path = f"/v0/topics/{topic}/arrow"
    found = http.get(f"{path}?from_seq=10&to_seq=2500")
    assert table(found)["seq"].to_pylist() == list(range(11, 2_501))
    limited = http.get(f"{path}?from_seq=10&limit=5")
    assert table(limited)["seq"].to_pylist() == [11, 12, 13, 14, 15]
    assert limited.headers["x-next-from-seq"] == "15"
    assert limited.headers["x-caught-up"] == "false"
    assert table(http.get(f"{path}?from_seq=3000")).num_rows == 0
    assert http.get(f"{path}?from_seq=x").code == "invalid_request"
    assert http.get("/v0/topics/nothing/arrow").code == "topic_not_found"


def test_an_arrow_answer_is_bounded_in_bytes(
    http: RawHttp, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.engine.topics.arrow.PAGE_BYTES_MAX", 100_000)
    for _ in range(20):
        http.write(topic, *["x" * 10_000] * 100)
    first = http.get(f"/v0/topics/{topic}/arrow")
    rows = table(first).num_rows
    assert 0 < rows < 2_000
    assert first.headers["x-caught-up"] == "false"
    assert int(first.headers["x-next-from-seq"]) == rows


def test_each_loss_has_an_arrow_answer_of_its_own(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    lost = [4, 5, 11]
    http.write(topic, *range(3))
    engine = server.app.backend.engine
    there = engine.topic(topic)
    server.inside(lambda: engine.topics.fill_dead(there, 5, 0, lost=True))
    http.write(topic, *range(5))
    server.inside(lambda: engine.topics.fill_dead(there, 11, 0, lost=True))
    http.write(topic, *range(9))
    cursor = 0
    found: list[int] = []
    told: list[int] = []
    while cursor < 20:
        answer = http.get(f"/v0/topics/{topic}/arrow?from_seq={cursor}")
        assert answer.headers["x-epoch"] == "1"
        if answer.headers["x-tombstone"]:
            tombstone = json.loads(answer.headers["x-tombstone"])
            told += range(tombstone["gap_from"], tombstone["gap_to"] + 1)
        found += table(answer)["seq"].to_pylist()
        assert int(answer.headers["x-next-from-seq"]) > cursor
        cursor = int(answer.headers["x-next-from-seq"])
    assert (told, found) == (lost, [seq for seq in range(1, 21) if seq not in lost])
