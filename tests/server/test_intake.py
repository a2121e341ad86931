"""Connections that come back are read together; how they end stays their transport's matter."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from headwater.server import intake
from tests.server.running_server import PATIENCE_S, RunningServer
from tests.server.test_write_batcher import Writers, single
from tests.unit.native.twins import is_compiled

EACH_MAX = 100


class Sockets:
    """Pairs of which one side is watched by an epoll."""

    def __init__(self, ends: ExitStack, count: int) -> None:
        self.epoll = ends.enter_context(select.epoll())
        self.pairs = [socket.socketpair() for _ in range(count)]
        for ours, theirs in self.pairs:
            ends.callback(ours.close)
            ends.callback(theirs.close)
            self.epoll.register(ours, select.EPOLLIN)

    def receive(self, room: int = 1_000) -> dict[int, bytes | None]:
        """By the number of the pair."""
        numbers = {ours.fileno(): number for number, (ours, _) in enumerate(self.pairs)}
        found = intake.receive(self.epoll, bytearray(room), EACH_MAX)
        return {numbers[descriptor]: data for descriptor, data in found}


@pytest.fixture(params=["compiled", "pure"])
def sockets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sockets]:
    if request.param == "pure":
        monkeypatch.setattr(intake, "_native", None)
    elif intake._native is None:
        pytest.skip("not compiled here")
    with ExitStack() as ends:
        yield Sockets(ends, 6)


def test_everybody_who_sent_something_is_read_and_nobody_else(sockets: Sockets) -> None:
    assert sockets.receive() == {}
    sockets.pairs[1][1].send(b"one")
    sockets.pairs[4][1].send(b"four")
    assert sockets.receive() == {1: b"one", 4: b"four"}
    assert sockets.receive() == {}


def test_an_end_and_a_broken_connection_are_told_as_none(sockets: Sockets) -> None:
    sockets.pairs[0][1].close()
    sockets.pairs[2][1].send(b"last words")
    sockets.pairs[2][1].close()
    assert sockets.receive() == {0: None, 2: b"last words"}
    assert sockets.receive() == {0: None, 2: None}


def test_what_has_no_room_is_read_in_the_next_turn(sockets: Sockets) -> None:
    for _, theirs in sockets.pairs:
        theirs.send(bytes(250))
    total = 0
    for _ in range(30):
        turn = sockets.receive(room=250)
        assert all(data is not None and len(data) <= EACH_MAX for data in turn.values())
        read = sum(len(data or b"") for data in turn.values())
        assert read <= 250
        total += read
    assert total == 6 * 250


def test_room_for_nobody_is_refused(sockets: Sockets) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        sockets.receive(room=EACH_MAX - 1)


class Receiving:
    """Keeps what it was given, and does something to others meanwhile."""

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def data_received(self, data: bytes) -> None:
        self.came.append(data)
        self.meanwhile()

    def broken_by(self, error: Exception) -> None:
        raise error


async def received_together(
    meanwhile: Callable[[intake.Reading], None],
) -> tuple[list[bytes], list[bytes]]:
    """Two connections whose bytes come in one turn; the first to be told does something to the
    other. Gives what each was told."""
    loop = asyncio.get_running_loop()
    turned = asyncio.Event()
    shared = intake.Intake(loop, turned.set)
    pairs = [socket.socketpair() for _ in range(2)]
    receivers = [Receiving() for _ in pairs]
    readings = []
    for (ours, _), receiver in zip(pairs, receivers, strict=True):
        ours.setblocking(False)
        transport, _protocol = await loop.create_connection(asyncio.Protocol, sock=ours)
        readings.append(intake.Reading(shared, receiver, transport))
        readings[-1].share()
    for receiver, other in zip(receivers, reversed(readings), strict=True):
        receiver.meanwhile = partial(meanwhile, other)
    for _, theirs in pairs:
        theirs.send(b"sent")
    await asyncio.wait_for(turned.wait(), PATIENCE_S)
    shared.close()
    for reading, (_, theirs) in zip(readings, pairs, strict=True):
        reading._transport.close()
        theirs.close()
    return receivers[0].came, receivers[1].came


def test_what_was_read_reaches_a_connection_that_is_held_back_in_the_same_turn() -> None:
    came = asyncio.run(received_together(lambda other: other.set(False)))
    assert came == ([b"sent"], [b"sent"])


def test_what_was_read_is_not_told_to_a_connection_that_ended_in_the_same_turn() -> None:
    first, second = asyncio.run(received_together(lambda other: other.end()))
    assert sorted([first, second]) == [[], [b"sent"]]


def in_intake(server: RunningServer) -> int:
    return int(server.inside(lambda: len(server.app.ports.intake)))


@pytest.mark.one_process
def test_a_connection_is_read_with_others_once_it_came_back(
    server: RunningServer, topic: str
) -> None:
    with server.talk() as http:
        before = in_intake(server)
        assert http.write(topic, 1).status == 201
        assert in_intake(server) == before
        for _ in range(3):
            assert http.write(topic, 1).status == 200
        assert in_intake(server) == before + 1


@pytest.mark.one_process
def test_a_connection_that_ends_is_no_longer_read(server: RunningServer, topic: str) -> None:
    before = in_intake(server)
    with ExitStack() as ends:
        Writers(server, topic, ends).send_at_once([single(n) for n in range(8)])
        assert in_intake(server) > before
    gone = threading.Event()

    def look() -> None:
        if len(server.app.ports.intake) == before:
            gone.set()
        else:
            server.loop.call_later(0.01, look)

    server.inside(look)
    assert gone.wait(PATIENCE_S)


def test_bodies_of_every_length_are_known_by_their_heads(server: RunningServer, topic: str) -> None:
    with server.talk() as http:
        for length in (*range(1, 40), *range(1, 40)):
            assert http.write(topic, "x" * length).status in (200, 201)
        found = http.diff(topic, 0, limit=1000).json["records"]
    assert [len(record["data"]) for record in found] == [*range(1, 40), *range(1, 40)]


def test_half_a_request_waits_for_its_other_half(server: RunningServer, topic: str) -> None:
    with server.talk() as http:
        for _ in range(3):
            assert http.write(topic, "whole").status in (200, 201)
        request = http.request("POST", f"/v0/topics/{topic}", single("in two parts"))
        for cut in (1, 20, len(request) - 5):
            http.send(request[:cut])
            server.inside(lambda: None)  # it was read so far
            http.send(request[cut:])
            assert http.answer().status == 200
        found = http.diff(topic, 0).json["records"]
    assert [record["data"] for record in found] == ["whole"] * 3 + ["in two parts"] * 3


@pytest.mark.one_process
def test_a_mistake_of_ours_costs_one_connection_and_not_the_others_of_its_turn(
    server: RunningServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as ends:
        writers = Writers(server, topic, ends)
        writers.send_at_once([single(n) for n in range(8)])
        find = server.app.http.known_heads.find

        def failing(data: bytes) -> object:
            if b"poison" in data:
                raise RuntimeError("a mistake")
            return find(data)

        monkeypatch.setattr(server.app.http.known_heads, "find", failing)
        sick = ends.enter_context(server.talk())
        for _ in range(3):
            assert sick.write(topic, "well").status == 200
        sick.send(sick.request("POST", f"/v0/topics/{topic}", single("poison")))
        answers = writers.send_at_once([single(n) for n in range(8)])
        assert [answer.status for answer in answers] == [200] * 8
        with pytest.raises((ConnectionError, EOFError, AssertionError)):
            sick.answer()


@is_compiled
def test_the_compiled_reader_is_in_use() -> None:
    assert intake._native is not None
