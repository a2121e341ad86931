"""Writes that come together: one append for all of them, and an answer for each."""

from __future__ import annotations

import gzip
import json
import select
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.core import limits
from headwater.core.errors import HeadwaterError, OverloadedError
from headwater.engine import turn
from headwater.engine.state.topic import Topic
from headwater.engine.topics.publisher import Write
from headwater.engine.topics.record_encoding import EncodedRecords
from headwater.server import server as server_module
from headwater.server.app import App
from headwater.server.http import write_batcher
from headwater.wire.answers import (
    Performance,
    WriteAnswer,
    write_answer,
    write_opening,
)
from headwater.wire.http_response import json_answer, short_json_answer
from tests.server.gated_disk import GatedDisk
from tests.server.raw_http import Answer, RawHttp
from tests.server.running_server import (
    PATIENCE_S,
    RunningServer,
    eventually,
    loop_held,
    running,
    settings,
    submissions,
)
from tests.server.turn_app import TurnApp

WRITERS = 20
SHARDS = 2


class Writers:
    """Connections that have written before, so that the server knows them."""

    def __init__(self, server: RunningServer, topic: str, ends: ExitStack, **options: Any) -> None:
        self._server = server
        self.topic = topic
        self.path = f"/v0/topics/{topic}"
        self.all = [ends.enter_context(server.talk(**options)) for _ in range(WRITERS)]
        for writer in self.all:
            assert writer.write(topic, "before").status in (200, 201)

    def send_at_once(self, bodies: Sequence[Any]) -> list[Answer]:
        """Each body from a connection of its own; the answers in the same order."""
        with loop_held(self._server):
            for writer, body in zip(self.all, bodies, strict=False):
                writer.send(writer.request("POST", self.path, body))
        return [writer.answer() for writer, _ in zip(self.all, bodies, strict=False)]

    def records(self) -> dict[int, Any]:
        found = (
            self.all[0].diff(self.topic, WRITERS, limit=10_000, include_tags=True).json["records"]
        )
        return {record["$seq"]: record for record in found}


@pytest.fixture(
    scope="module",
    params=[App, pytest.param(TurnApp, marks=pytest.mark.one_process)],
    ids=["here", "over a channel"],
    autouse=True,
)
def app(request: pytest.FixtureRequest) -> Iterator[type[App]]:
    """The engine is in this process, or behind a channel."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(server_module, "App", request.param)
        yield request.param


@pytest.fixture(scope="module")
def server(app: type[App], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("server") / "data") as found:
        assert isinstance(found.app, app)
        yield found


@pytest.fixture
def writers(server: RunningServer, topic: str) -> Iterator[Writers]:
    with ExitStack() as ends:
        yield Writers(server, topic, ends)


def single(data: Any, **fields: Any) -> dict[str, Any]:
    return {"records": [{"data": data}], **fields}


def test_writes_of_one_turn_are_one_submission_and_each_gets_the_seq_of_its_record(
    server: RunningServer, writers: Writers
) -> None:
    before, appends = submissions(server), server.app.backend.engine.core.counters.appends
    answers = writers.send_at_once([single({"n": n}) for n in range(WRITERS)])
    assert submissions(server) - before < WRITERS / 2
    assert server.app.backend.engine.core.counters.appends - appends == WRITERS
    records = writers.records()
    for n, answer in enumerate(answers):
        assert answer.status == 200
        found = msgspec.json.decode(answer.body, type=WriteAnswer)
        assert found.seqs == [found.first_seq] == [found.last_seq]
        assert records[found.first_seq]["data"] == {"n": n}
        assert found.head_seq >= found.last_seq
        assert not found.created
        assert found.performance.server_total_ms >= found.performance.fsync_ms > 0
    assert sorted(records) == list(range(WRITERS + 1, 2 * WRITERS + 1))
    assert len({answer.headers["x-request-id"] for answer in answers}) == WRITERS


def test_tags_nodes_and_meta_stay_with_their_records(writers: Writers) -> None:
    bodies: list[Any] = [single(n) for n in range(8)]
    bodies[2]["records"][0] |= {"tag": "a", "meta": {"m": 2}}
    bodies[5] |= {"node": "there"}
    answers = writers.send_at_once(bodies)
    records = writers.records()
    by_data = {record["data"]: record for record in records.values()}
    assert len(by_data) == len(bodies)
    assert [answer.json["first_seq"] for answer in answers] == [
        by_data[n]["$seq"] for n in range(8)
    ]
    assert {n: record.get("$tag") for n, record in by_data.items() if "$tag" in record} == {2: "a"}
    assert by_data[2]["meta"] == {"m": 2}
    assert [n for n, record in by_data.items() if record.get("$node") == "there"] == [5]


def test_a_bad_write_among_good_ones_is_refused_alone(writers: Writers) -> None:
    bodies: list[Any] = [single(n) for n in range(8)]
    bodies[1] = b'{"records":[{"data":1}]'
    bodies[3] = b'{"records":[{"data":1}]},{"records":[{"data":2}]}'
    bodies[4] = {"records": []}
    bodies[6] = single(1, nonsense=True)
    answers = writers.send_at_once(bodies)
    assert [answer.status for answer in answers] == [200, 400, 200, 400, 400, 200, 400, 200]
    assert sorted(record["data"] for record in writers.records().values()) == [0, 2, 5, 7]


def test_writes_that_ask_for_more_go_by_themselves_and_the_others_together(
    writers: Writers,
) -> None:
    bodies: list[Any] = [single(n) for n in range(8)]
    bodies[1] |= {"idempotency_key": "once"}
    bodies[2] |= {"idempotency_key": "once"}
    bodies[4] |= {"expect_head_seq": 1}
    bodies[6]["records"].append({"data": "second"})
    answers = writers.send_at_once(bodies)
    assert [answer.status for answer in answers] == [200, 200, 200, 200, 409, 200, 200, 200]
    assert answers[1].json["first_seq"] == answers[2].json["first_seq"]
    assert sorted([answers[1].json["deduped"], answers[2].json["deduped"]]) == [False, True]
    assert answers[6].json["count"] == 2
    found = [record["data"] for record in writers.records().values()]
    assert sorted(map(str, found)) == ["0", *(["1"] if 1 in found else ["2"]), "3", "5", "6", "7",
                                       "second"]  # fmt: skip


def batch_of(n: int, count: int) -> dict[str, Any]:
    return {"records": [{"data": [n, at], "tag": f"t{at % 2}"} for at in range(count)]}


def test_batches_of_one_turn_are_one_submission_and_each_is_whole_and_in_order(
    server: RunningServer, writers: Writers
) -> None:
    """Whatever brings their bodies: plain ones, and some with a node and meta among them."""
    bodies = [batch_of(n, 1 + 7 * n % 40) for n in range(WRITERS)]
    bodies[3]["node"] = "there"
    bodies[8]["records"][2]["meta"] = {"m": 1}
    bodies[11]["records"][0]["data"] = "\N{GRINNING FACE}"
    before, appends = submissions(server), server.app.backend.engine.core.counters.appends
    answers = writers.send_at_once(bodies)
    assert submissions(server) - before < WRITERS / 2
    assert server.app.backend.engine.core.counters.appends - appends == WRITERS
    records = writers.records()
    assert len(records) == 1 + len([each for body in bodies for each in body["records"]]) - 1
    for body, answer in zip(bodies, answers, strict=True):
        found = msgspec.json.decode(answer.body, type=WriteAnswer)
        count = len(body["records"])
        assert (found.count, found.last_seq) == (count, found.first_seq + count - 1)
        assert found.seqs == list(range(found.first_seq, found.last_seq + 1))
        for seq, sent in zip(found.seqs, body["records"], strict=True):
            assert records[seq]["data"] == sent["data"]
            assert records[seq]["$tag"] == sent["tag"]
            assert records[seq].get("meta") == sent.get("meta")
            assert records[seq].get("$node") == body.get("node")


def test_a_bad_record_refuses_its_own_batch_and_no_other(writers: Writers) -> None:
    bodies: list[Any] = [batch_of(n, 5) for n in range(6)]
    bodies[1]["records"][4] = {"tag": "no data"}
    bodies[2] = b'{"records":[{"data":[2,0]},{"data":[2,1]'
    bodies[4]["records"][3]["data"] = "x" * (limits.RECORD_BYTES_MAX + 1)
    answers = writers.send_at_once(bodies)
    assert [answer.status for answer in answers] == [200, 400, 400, 200, 413, 200]
    found = [record["data"] for record in writers.records().values()]
    assert sorted(found) == [[n, at] for n in (0, 3, 5) for at in range(5)]


def test_a_key_of_a_batch_stands_for_all_of_its_records(writers: Writers) -> None:
    bodies = [batch_of(n, 4) | {"idempotency_key": f"key-{n}"} for n in range(WRITERS)]
    first = [answer.json["seqs"] for answer in writers.send_at_once(bodies)]
    assert sorted(seq for seqs in first for seq in seqs) == sorted(writers.records())
    again = writers.send_at_once(bodies)
    assert [answer.json["deduped"] for answer in again] == [True] * WRITERS
    assert [answer.json["seqs"] for answer in again] == first


def test_a_long_answer_is_packed_for_who_takes_that_and_a_short_one_is_not(
    server: RunningServer, topic: str
) -> None:
    with server.talk() as http:
        assert http.write(topic, "before").status == 201
        for count, is_packed in ((20, False), (400, True)):
            body = batch_of(0, count)
            packed = http.ask(
                "POST", f"/v0/topics/{topic}", body, headers={"accept-encoding": "gzip"}
            )
            plain = http.ask("POST", f"/v0/topics/{topic}", body)
            assert ("content-encoding" in packed.headers) is is_packed
            assert "content-encoding" not in plain.headers
            told = json.loads(gzip.decompress(packed.body) if is_packed else packed.body)
            assert len(told["seqs"]) == told["count"] == count
            assert plain.json["first_seq"] == told["last_seq"] + 1


def test_longer_turns_than_one_submission_takes_are_several_in_order(
    server: RunningServer, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_batcher, "TURN_BYTES", 300)
    monkeypatch.setattr(turn, "SUBMISSION_BYTES", 300)
    before = submissions(server)
    with loop_held(server):
        for writer in writers.all:
            for n in range(3):
                writer.send(writer.request("POST", writers.path, batch_of(n, 10)))
    answers = [[writer.answer().json for _ in range(3)] for writer in writers.all]
    assert WRITERS / 4 < submissions(server) - before < 3 * WRITERS
    records = writers.records()
    assert len(records) == 3 * 10 * WRITERS
    for of_one in answers:
        seqs = [seq for answer in of_one for seq in answer["seqs"]]
        assert seqs == sorted(seqs)
        assert [records[seq]["data"] for seq in seqs] == [
            [n, at] for n in range(3) for at in range(10)
        ]


def keyed(count: int = WRITERS) -> list[dict[str, Any]]:
    return [single(n, idempotency_key=f"key-{n}") for n in range(count)]


def seqs_of(answers: Sequence[Answer], *, deduped: bool) -> list[int]:
    assert {(answer.status, answer.json["deduped"]) for answer in answers} == {(200, deduped)}
    assert all(answer.json["first_seq"] == answer.json["last_seq"] for answer in answers)
    return [answer.json["first_seq"] for answer in answers]


def test_keys_of_writes_that_went_together_stand_for_one_record_each_over_a_restart(
    tmp_path: Path, topic: str
) -> None:
    with running(tmp_path / "data") as server, ExitStack() as ends:
        writers = Writers(server, topic, ends)
        before = submissions(server)
        first = seqs_of(writers.send_at_once(keyed()), deduped=False)
        assert submissions(server) - before < WRITERS / 2
        assert sorted(first) == sorted(writers.records())
        assert seqs_of(writers.send_at_once(keyed()), deduped=True) == first
    with running(tmp_path / "data") as server, ExitStack() as ends:
        writers = Writers(server, topic, ends)
        assert seqs_of(writers.send_at_once(keyed()), deduped=True) == first


def test_who_repeats_a_write_that_is_under_way_with_others_is_told_of_its_own_record(
    tmp_path: Path, topic: str
) -> None:
    disk = GatedDisk()
    with running(tmp_path / "data", disk=disk) as server, ExitStack() as ends:
        writers = Writers(server, topic, ends)
        half = WRITERS // 2
        disk.syncs.close()
        bodies = keyed(half)
        with loop_held(server):
            for writer, body in zip(writers.all, bodies, strict=False):
                writer.send(writer.request("POST", writers.path, body))
        assert disk.syncs.somebody_waits.wait(PATIENCE_S)
        with loop_held(server):
            for writer, body in zip(writers.all[half:], bodies, strict=True):
                writer.send(writer.request("POST", writers.path, body))
        with loop_held(server):  # and now they have been read
            disk.syncs.open()
        first = seqs_of([writer.answer() for writer in writers.all[:half]], deduped=False)
        again = seqs_of([writer.answer() for writer in writers.all[half:]], deduped=True)
        assert again == first
        assert sorted(writers.records()) == sorted(first)


def test_requests_of_one_connection_take_effect_in_the_order_they_were_sent(
    server: RunningServer, writers: Writers
) -> None:
    """Plain ones that are gathered, and others between them that are not."""
    head, writer = WRITERS, writers.all[0]
    with loop_held(server):
        for body in (
            single("a"),
            single("b", expect_head_seq=head + 1),
            single("c"),
            single("d" * 5_000),
            single("e", idempotency_key="k"),
            single("f"),
            {"records": [{"data": "g"}, {"data": "h"}]},
        ):
            headers = {"idempotency-key": "its own"} if body == single("c") else None
            writer.send(writer.request("POST", writers.path, body, headers))
        writer.send(writer.request("POST", f"{writers.path}/diff", {"from_seq": head}))
    answers = [writer.answer() for _ in range(8)]
    assert [answer.status for answer in answers] == [200] * 8
    assert [record["data"][0] for record in answers[-1].json["records"]] == list("abcdefgh")
    assert [answer.json["first_seq"] - head for answer in answers[:-1]] == [1, 2, 3, 4, 5, 6, 7]


def test_each_topic_has_its_own_records_when_writes_to_several_come_together(
    server: RunningServer, writers: Writers
) -> None:
    other = writers.topic + "-other"
    assert writers.all[0].put(other).status in (200, 201)
    with loop_held(server):
        for n, writer in enumerate(writers.all):
            name = (writers.topic, other)[n % 2]
            writer.send(writer.request("POST", f"/v0/topics/{name}", single(n)))
    answers = [writer.answer() for writer in writers.all]
    found = writers.all[0].diff(other).json["records"]
    assert {record["$seq"]: record["data"] for record in found} == {
        answer.json["first_seq"]: n for n, answer in enumerate(answers) if n % 2
    }
    assert sorted(record["data"] for record in writers.records().values()) == list(
        range(0, WRITERS, 2)
    )


@pytest.mark.one_process
def test_writes_to_many_topics_in_one_turn_are_one_submission_and_one_sending(
    server: RunningServer, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{writers.topic}-{number}" for number in range(WRITERS)]
    for name in names:
        assert writers.all[0].put(name).status == 201
    sendings: list[int] = []
    native = write_batcher._native_answers
    if native is not None:

        class Counted:
            def send_write_replies(self, *given: Any) -> dict[int, bytes]:
                sendings.append(len(given[2]))
                assert native is not None
                unsent: dict[int, bytes] = native.send_write_replies(*given)
                return unsent

        monkeypatch.setattr(write_batcher, "_native_answers", Counted())
    before = submissions(server)
    with loop_held(server):
        for n, (writer, name) in enumerate(zip(writers.all, names, strict=True)):
            writer.send(writer.request("POST", f"/v0/topics/{name}", single(n)))
    answers = [writer.answer() for writer in writers.all]
    assert submissions(server) - before <= 2 * SHARDS, "one for each shard and turn of reading"
    assert [(answer.json["topic"], answer.json["seqs"]) for answer in answers] == [
        (name, [1]) for name in names
    ]
    for n, name in enumerate(names):
        assert [record["data"] for record in writers.all[0].diff(name).json["records"]] == [n]
    assert native is None or (sum(sendings) == WRITERS and len(sendings) <= 2 * SHARDS)


def test_a_bad_write_to_one_topic_leaves_the_other_topics_of_its_turn_alone(
    writers: Writers, server: RunningServer
) -> None:
    other = writers.topic + "-other"
    assert writers.all[0].put(other).status in (200, 201)
    bodies: list[Any] = [single("a"), b'{"records":', single("b"), single("c") | {"node": "n"}]
    with loop_held(server):
        for n, (writer, body) in enumerate(zip(writers.all, bodies, strict=False)):
            name = (writers.topic, other)[n % 2]
            writer.send(writer.request("POST", f"/v0/topics/{name}", body))
    answers = [writer.answer() for writer, _ in zip(writers.all, bodies, strict=False)]
    assert [answer.status for answer in answers] == [200, 400, 200, 200]
    (record,) = writers.all[0].diff(other).json["records"]
    assert (record["data"], record["$node"]) == ("c", "n")
    assert sorted(record["data"] for record in writers.records().values()) == ["a", "b"]


def test_bodies_that_cannot_be_read_together_are_read_one_by_one(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoMemory:
        def plain_records(self, *_given: Any) -> Any:
            raise MemoryError

    monkeypatch.setattr(write_batcher, "_native", NoMemory())
    answers = writers.send_at_once([single(n) for n in range(WRITERS)])
    assert [answer.status for answer in answers] == [200] * WRITERS
    records = writers.records()
    assert [records[answer.json["first_seq"]]["data"] for answer in answers] == list(range(WRITERS))


def test_what_is_not_taken_together_is_tried_one_by_one(
    server: RunningServer, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = server.app.backend.engine
    refused: list[int] = []

    def append_turn(batches: dict[Topic, EncodedRecords]) -> list[HeadwaterError]:
        refused.extend(records.writers for records in batches.values())
        return [OverloadedError("not all of them")] * len(batches)

    monkeypatch.setattr(engine, "append_turn", append_turn)
    answers = writers.send_at_once([single(n) for n in range(WRITERS)])
    assert refused
    assert [answer.status for answer in answers] == [200] * WRITERS
    records = writers.records()
    assert [records[answer.json["first_seq"]]["data"] for answer in answers] == list(range(WRITERS))


def test_a_mistake_of_the_servers_own_leaves_nobody_without_an_answer(
    server: RunningServer, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append(*_given: Any, **_options: Any) -> Write:
        raise ZeroDivisionError("a mistake")

    with monkeypatch.context() as broken:
        broken.setattr(server.app.backend.engine, "append_turn", append)
        answers = writers.send_at_once([single(n) for n in range(WRITERS)])
    assert [answer.status for answer in answers] == [500] * WRITERS
    again = writers.send_at_once([single(n) for n in range(WRITERS)])
    assert [answer.status for answer in again] == [200] * WRITERS


@pytest.mark.one_process
def test_answers_that_cannot_be_sent_together_are_sent_one_by_one(
    server: RunningServer, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    if write_batcher._native_answers is None:
        pytest.skip("not compiled here: none are sent together")
    asked = []

    class Broken:
        def send_write_replies(self, *given: Any) -> dict[int, bytes]:
            asked.append(len(given[2]))
            raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(write_batcher, "_native_answers", Broken())
        answers = writers.send_at_once([single(n) for n in range(WRITERS)])
    assert sum(asked) == WRITERS
    assert [answer.status for answer in answers] == [200] * WRITERS
    again = writers.send_at_once([single(n) for n in range(WRITERS)])
    assert [answer.status for answer in again] == [200] * WRITERS


def test_more_writes_than_a_key_may_have_under_way_are_refused_one_by_one(
    tmp_path: Path, topic: str
) -> None:
    disk = GatedDisk()
    chosen = settings(limits={"in_flight_per_key": 5})
    with running(tmp_path / "data", chosen, disk=disk) as server, ExitStack() as ends:
        writers = Writers(server, topic, ends)
        disk.syncs.close()
        with loop_held(server):
            for n, writer in enumerate(writers.all):
                writer.send(writer.request("POST", writers.path, single(n)))
        sockets = [writer.socket for writer in writers.all]
        eventually(lambda: len(select.select(sockets, [], [], 0)[0]) == WRITERS - 5)
        disk.syncs.open()
        answers = [writer.answer() for writer in writers.all]
        taken = [answer for answer in answers if answer.status == 200]
        refused = [answer for answer in answers if answer.status == 429]
        assert (len(taken), len(refused)) == (5, WRITERS - 5)
        assert {answer.code for answer in refused} == {"throttled"}
        assert len(writers.records()) == 5
        assert writers.send_at_once([single("after")])[0].status == 200


def test_a_failed_sync_is_told_to_everybody_who_was_in_the_group(
    tmp_path: Path, topic: str
) -> None:
    disk = GatedDisk()
    with running(tmp_path / "data", disk=disk) as server, ExitStack() as ends:
        writers = Writers(server, topic, ends)
        disk.is_broken = True
        answers = writers.send_at_once([single(n) for n in range(WRITERS)])
        assert {answer.code for answer in answers} == {"storage_failed"}
        again = writers.send_at_once([single(n) for n in range(WRITERS)])
        assert {answer.code for answer in again} == {"storage_failed"}


def test_who_leaves_before_the_answer_costs_the_others_nothing(
    server: RunningServer, writers: Writers
) -> None:
    with loop_held(server):
        for n, writer in enumerate(writers.all):
            writer.send(writer.request("POST", writers.path, single(n)))
        for writer in writers.all[5:10]:
            writer.close()
    answers = [writer.answer() for writer in (*writers.all[:5], *writers.all[10:])]
    assert [answer.status for answer in answers] == [200] * (WRITERS - 5)


@pytest.mark.parametrize(
    ("total_us", "sync_us", "throttle_us"),
    [(0, 0, 0), (1, 0, 0), (1_234, 1_000, 7), (999, 1_000, 5), (12_345_678, 5_001, 99_999_999)],
)
@pytest.mark.parametrize("count", [1, 2, 100])
def test_the_printed_answer_is_the_declared_one(
    total_us: int, sync_us: int, throttle_us: int, count: int
) -> None:
    opening = write_opening("orders")
    printed = write_answer(opening, 7, count, 9, total_us, sync_us, throttle_us)
    append_us = max(total_us - sync_us, 0)
    spent = Performance(
        total_us / 1_000, append_us / 1_000, sync_us / 1_000, min(throttle_us, append_us) / 1_000
    )
    seqs = list(range(7, 7 + count))
    expected = WriteAnswer("orders", 7, seqs[-1], 9, count, False, False, spent, seqs)
    assert msgspec.json.decode(printed, type=WriteAnswer) == expected


def test_the_short_way_to_print_an_answer_gives_the_same_bytes() -> None:
    body = write_answer(b"{", 1, 1, 1, 2_000, 1_000, 0)
    same = json_answer(200, body, keep_alive=True, extra=b"x-request-id: abc-1f\r\n")
    assert short_json_answer(body, b"abc", 0x1F) == same


def test_a_lone_write_is_answered_like_any_other(http: RawHttp) -> None:
    assert http.write("alone", 1).json["created"] is True
    assert http.write("alone", 2).json["seqs"] == [2]
