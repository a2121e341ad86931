"""Turns of several gateways are one turn of the sequencer, and nothing is written twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headwater.core.errors import FormatError
from headwater.server import server as server_module
from headwater.server.gateway.turn_sender import TurnSender
from headwater.server.http.turn_receiver import GatewayTurns, TurnReceiver
from headwater.server.http.turn_writer import TurnWriter
from headwater.wire.channel import ChannelError
from headwater.wire.turns import GroupOutcome, Row, decode_reply, encode_reply, encode_turn
from tests.server.gated_disk import GatedDisk
from tests.server.raw_http import RawHttp
from tests.server.running_server import (
    PATIENCE_S,
    RunningServer,
    eventually,
    loop_held,
    running,
    settings,
    submissions,
)
from tests.server.test_write_batcher import WRITERS, Writers, single
from tests.server.turn_app import TurnApp, Wire

SECRET = "a-long-secret"


pytestmark = pytest.mark.one_process


@pytest.fixture(scope="module", autouse=True)
def over_a_channel() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(server_module, "App", TurnApp)
        yield


def wire_of(server: RunningServer) -> Wire:
    assert isinstance(server.app, TurnApp)
    return server.app.wire


def sender_of(server: RunningServer) -> TurnSender:
    assert isinstance(server.app, TurnApp)
    return server.app.sender


def asked_of(server: RunningServer) -> int:
    assert isinstance(server.app, TurnApp)
    return server.app.asked


class Gateway:
    """A gateway that is only a channel: what it sends, and the rows it was sent."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self.rows: list[Row] = []
        self.frames = 0
        self.errors: list[str] = []
        receiver = wire_of(server).gateway.receiver
        self._turns = GatewayTurns(receiver, self._reply)

    def _reply(self, payload: bytes) -> None:
        rows, failures = decode_reply(payload)
        self.rows += rows
        self.errors += [failure.code for failure in failures]
        self.frames += 1

    def send(self, *groups: tuple[str, int, Sequence[bytes]], first: int = 1, key: int = 0) -> None:
        """Groups of a topic, how many requests, and payloads. On the loop of the server."""
        rows = [(key, name.encode(), requests, len(datas)) for name, requests, datas in groups]
        datas = [data for _, _, datas in groups for data in datas]
        self._turns.take(encode_turn(first, rows, [b""] * len(datas), datas))

    def written(self, count: int) -> dict[int, tuple[int, int]]:
        """First seq and head by group, when so many rows are there."""
        eventually(lambda: len(self.rows) >= count)
        assert {row[1] for row in self.rows} == {GroupOutcome.WRITTEN}
        return {row[0]: (row[3], row[4]) for row in self.rows}


@contextmanager
def topics(server: RunningServer, *names: str) -> Iterator[RawHttp]:
    with server.talk() as http:
        for name in names:
            assert http.put(name).status == 201
        yield http


def make_refusing(http: RawHttp, name: str, cap: int) -> None:
    """A topic that refuses writes when it is full: it checks each for room."""
    assert http.put(name, cap_records=cap, discard="reject").status == 201


def test_groups_of_many_gateways_are_one_submission_and_each_gets_its_own_seqs(
    server: RunningServer, topic: str
) -> None:
    other = topic + "-other"
    with topics(server, topic, other) as http:
        gateways = [Gateway(server) for _ in range(3)]
        before = submissions(server)

        def send() -> None:
            for number, gateway in enumerate(gateways):
                here, there = b'"%d here"' % number, b'"%d there"' % number
                gateway.send((topic, 2, [here, here]), (other, 1, [there]), first=7)

        server.inside(send)
        found = [gateway.written(2) for gateway in gateways]
        assert submissions(server) - before <= 2, "one for each shard"
        assert [each[7][0] for each in found] == [1, 3, 5]
        assert [each[8][0] for each in found] == [1, 2, 3]
        assert {each[7][1] for each in found} == {6}
        assert [gateway.frames for gateway in gateways] == [1] * 3 or submissions(server) > before
        data = [record["data"] for record in http.diff(topic).json["records"]]
        assert data == [f"{number} here" for number in range(3) for _ in range(2)]
        data = [record["data"] for record in http.diff(other).json["records"]]
        assert data == [f"{number} there" for number in range(3)]


def test_what_cannot_be_written_together_is_told_so_and_the_rest_is_written(
    server: RunningServer, topic: str
) -> None:
    full = topic + "-full"
    with topics(server, topic) as http:
        make_refusing(http, full, 1)
        gateway = Gateway(server)
        data = [b"1"]
        server.inside(
            lambda: gateway.send(("nowhere", 1, data), (topic, 1, data), (full, 1, data), first=1)
        )
        eventually(lambda: len(gateway.rows) == 3)
        outcomes = {row[0]: row[1] for row in gateway.rows}
        alone, written = GroupOutcome.ALONE, GroupOutcome.WRITTEN
        assert outcomes == {1: alone, 2: written, 3: alone}
        assert http.diff("nowhere").status == 404
        assert http.diff(full).json["records"] == []


def test_a_server_that_stops_takes_no_more_turns(server: RunningServer, topic: str) -> None:
    with topics(server, topic) as http:
        gateway = Gateway(server)
        backend = server.app.backend

        def send() -> None:
            gateway.send((topic, 1, [b"1"]))
            backend.draining = True
            server.loop.call_soon(lambda: setattr(backend, "draining", False))

        server.inside(send)
        eventually(lambda: gateway.rows)
        assert gateway.rows[0][1] == GroupOutcome.ALONE
        assert http.diff(topic).json["records"] == []


def test_a_key_has_what_it_may_have_under_way_over_all_gateways(tmp_path: Path, topic: str) -> None:
    disk = GatedDisk()
    chosen = settings(limits={"in_flight_per_key": 5}, api_keys=(SECRET, "another-secret"))
    with running(tmp_path / "data", chosen, disk=disk) as server:
        with server.talk(key=SECRET) as http:
            assert http.put(topic).status == 201
        first, second = Gateway(server), Gateway(server)
        disk.syncs.close()
        server.inside(lambda: first.send((topic, 3, [b"1"] * 3), key=1))
        assert disk.syncs.somebody_waits.wait(PATIENCE_S)
        server.inside(lambda: second.send((topic, 3, [b"1"] * 3), key=1))
        eventually(lambda: second.rows)
        assert second.rows[0][1] == GroupOutcome.ALONE
        server.inside(lambda: second.send((topic, 3, [b"1"] * 3), first=2, key=2))
        disk.syncs.open()
        first.written(1)
        eventually(lambda: len(second.rows) == 2)
        assert second.rows[1][:2] == (2, GroupOutcome.WRITTEN)
        server.inside(lambda: first.send((topic, 5, [b"1"] * 5), first=2, key=1))
        first.written(2)


def test_a_frame_that_makes_no_sense_breaks_the_channel_and_writes_nothing(
    server: RunningServer, topic: str
) -> None:
    with topics(server, topic) as http:
        gateway = Gateway(server)
        with pytest.raises(ChannelError, match="no key 1"):
            server.inside(lambda: gateway.send((topic, 1, [b"1"]), key=1))
        with pytest.raises(FormatError):
            server.inside(lambda: wire_of(server).gateway.take(b"nonsense"))
        sender = sender_of(server)
        reply = encode_reply([(1 << 60, GroupOutcome.WRITTEN, 0, 1, 1, 0, 0)])
        with pytest.raises(ChannelError, match="no group"):
            server.inside(lambda: sender.take_reply(reply))
        assert http.diff(topic).json["records"] == []


def test_who_waits_for_a_lost_reply_is_told_that_it_is_unknown_and_nothing_is_written_twice(
    tmp_path: Path, topic: str
) -> None:
    disk = GatedDisk()
    with running(tmp_path / "data", disk=disk) as server, ExitStack() as ends:
        writers = Writers(server, topic, ends)
        wire, sender = wire_of(server), sender_of(server)
        eventually(lambda: server.inside(lambda: sender.takes(topic)))  # it was made just now
        assert writers.send_at_once([single("99")])[0].status == 200  # heads like it are known
        disk.syncs.close()
        with loop_held(server):
            for n, writer in enumerate(writers.all, 10):
                writer.send(writer.request("POST", writers.path, single(str(n))))
        assert disk.syncs.somebody_waits.wait(PATIENCE_S)
        sent = len(wire.turns)
        wire.is_cut = True
        disk.syncs.open()
        eventually(lambda: server.inside(lambda: len(wire.replies)) == sent)
        server.inside(sender.lost)
        answers = [writer.answer() for writer in writers.all]
        assert {(answer.status, answer.code) for answer in answers} == {(503, "no_answer")}
        assert {"may or may not" in answer.json["error"]["message"] for answer in answers} == {True}
        assert len(wire.turns) == sent
        records = [record["data"] for record in writers.records().values()]
        assert sorted(records) == sorted(["99", *map(str, range(10, 10 + WRITERS))])
        # While there is no sequencer behind the channel, requests go whatever way is left.
        assert writers.all[0].write(topic, "after").status == 200


def test_a_full_disk_is_told_and_not_tried_again(tmp_path: Path, topic: str) -> None:
    disk = GatedDisk()
    with running(tmp_path / "data", disk=disk) as server, ExitStack() as ends:
        writers = Writers(server, topic, ends)
        bodies = [single(str(n)) for n in range(10, 10 + WRITERS)]
        writers.send_at_once(bodies[:1])  # heads like it are known
        eventually(lambda: server.inside(lambda: sender_of(server).takes(topic)))
        turns, asked = len(wire_of(server).turns), asked_of(server)
        disk.is_broken = True
        answers = writers.send_at_once(bodies)
        assert {answer.code for answer in answers} == {"storage_failed"}
        assert len(wire_of(server).turns) > turns
        assert asked_of(server) == asked


def test_a_topic_that_takes_no_turns_is_not_asked_for_each_write(
    server: RunningServer, topic: str
) -> None:
    with server.talk() as http:
        make_refusing(http, topic, 1000)
        wire = wire_of(server)
        before = len(wire.turns)
        for n in range(20):
            assert http.write(topic, n).status == 200
        assert len(wire.turns) - before < 10
        assert len(http.diff(topic).json["records"]) == 20


def test_a_write_of_a_gateway_that_is_gone_is_kept(server: RunningServer, topic: str) -> None:
    with topics(server, topic) as http:
        receiver = wire_of(server).gateway.receiver
        gone = GatewayTurns(receiver, lambda _payload: None)
        frame = encode_turn(1, [(0, topic.encode(), 1, 1)], [b"t"], [b"1"])
        server.inside(lambda: gone.take(frame))
        eventually(lambda: http.diff(topic).json["records"])


def test_an_answer_that_cannot_be_told_costs_the_others_nothing(
    server: RunningServer, topic: str
) -> None:
    """A gateway whose channel breaks while it is told."""
    with topics(server, topic):
        receiver = wire_of(server).gateway.receiver

        def send(_payload: bytes) -> None:
            raise BrokenPipeError

        broken, whole = GatewayTurns(receiver, send), Gateway(server)
        frame = encode_turn(1, [(0, topic.encode(), 1, 1)], [b""], [b"1"])

        def take() -> None:
            broken.take(frame)
            whole.send((topic, 1, [b"2"]))

        server.inside(take)
        whole.written(1)


def test_requests_of_one_connection_with_several_keys_take_effect_in_their_order(
    tmp_path: Path, topic: str
) -> None:
    chosen = settings(api_keys=(SECRET, "another-secret"))
    with running(tmp_path / "data", chosen) as server, server.talk(key=SECRET) as http:
        assert http.put(topic).status == 201
        other = RawHttp(server.host, server.port, key="another-secret")
        for each in (http, other):
            assert each.write(topic, "before").status == 200
        with loop_held(server):
            for n in range(8):
                who = (http, other)[n % 3 == 1]
                http.send(who.request("POST", f"/v0/topics/{topic}", single(n)))
        seqs = [http.answer().json["first_seq"] for _ in range(8)]
        assert seqs == sorted(seqs)
        other.close()


def test_nothing_is_begun_behind_a_write_that_may_have_to_be_asked_for_by_itself(
    server: RunningServer, topic: str
) -> None:
    wire, sender = wire_of(server), sender_of(server)
    with server.talk() as http, server.talk() as other:
        make_refusing(http, topic, 1000)
        assert http.write(topic, "0").status == 200
        eventually(lambda: server.inside(lambda: sender.takes(topic)))
        asked = asked_of(server)
        wire.held = []
        for n in range(1, 4):
            http.send(http.request("POST", f"/v0/topics/{topic}", single(str(n))))
            assert other.diff(topic).status == 200  # it was read alone
        eventually(lambda: wire.held)
        assert [len(wire.held), asked_of(server)] == [1, asked]
        server.inside(wire.let_go)
        assert [http.answer().json["first_seq"] for _ in range(3)] == [2, 3, 4]
        assert asked_of(server) > asked
        data = [record["data"] for record in http.diff(topic).json["records"]]
        assert data == ["0", "1", "2", "3"]


def test_one_idempotency_key_in_writes_of_two_api_keys_stands_for_one_record(
    tmp_path: Path, topic: str
) -> None:
    chosen = settings(api_keys=(SECRET, "another-secret"))
    with running(tmp_path / "data", chosen) as server, ExitStack() as ends:
        both = [ends.enter_context(server.talk(key=key)) for key in (SECRET, "another-secret")]
        for http in both:
            assert http.write(topic, "before").status in (200, 201)
        with loop_held(server):
            for n, http in enumerate(both):
                body = single(n, idempotency_key="once")
                http.send(http.request("POST", f"/v0/topics/{topic}", body))
        answers = [http.answer().json for http in both]
        assert [answer["first_seq"] for answer in answers] == [3, 3]
        assert sorted(answer["deduped"] for answer in answers) == [False, True]


def test_a_writer_without_an_engine_tells_all_to_ask_alone(server: RunningServer) -> None:
    writer = TurnWriter(server.app.backend, server.loop)
    told: list[bytes] = []
    receiver = TurnReceiver(writer, server.app.access, wire_of(server).gateway.receiver.log)
    gateway = GatewayTurns(receiver, told.append)
    frame = encode_turn(1, [(0, b"any", 1, 1)], [b""], [b"1"])
    server.inside(lambda: gateway.take(frame))
    eventually(lambda: told)
    assert decode_reply(told[0])[0][0][1] == GroupOutcome.ALONE
