"""Parts of a server that are loaded when someone comes who needs them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.observe.logs import Logger
from headwater.server.access.keys import Scope
from headwater.server.arrivals import Arrivals
from headwater.server.http.exchange import Exchange
from headwater.server.http.route_table import LateRoutes, Route, RouteTable
from headwater.wire.http_errors import HttpError
from tests.kafka.broker import Broker, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.rig.captured_logs import captured_logs


def nothing(_service: object, _exchange: Exchange) -> None:
    """A handler."""


HERE = Route("GET", "/v0/here/{name}", nothing, "", Scope.NONE, served_by=RouteTable)
WHOLE = Route("GET", "/v0/here/whole", nothing, "written out", Scope.NONE, served_by=RouteTable)
THERE = Route("GET", "/v0/there/{name}", nothing, "", Scope.NONE, served_by=RouteTable)


@pytest.fixture
def loads() -> list[str]:
    return []


@pytest.fixture
def table(loads: list[str]) -> RouteTable:
    def load() -> tuple[Route, ...]:
        loads.append(threading.current_thread().name)
        return (THERE,)

    return RouteTable([HERE, WHOLE], {}, [LateRoutes(("/v0/there",), load)])


def test_late_routes_are_there_once_they_were_loaded(table: RouteTable, loads: list[str]) -> None:
    assert table.find(b"GET", b"/v0/here/a")[1] == ("a",)
    assert not table.is_late(b"/v0/here/a")
    assert table.is_late(b"/v0/there/a")
    with pytest.raises(HttpError):
        table.find(b"GET", b"/v0/there/a")

    async def two_at_once() -> None:
        await asyncio.gather(table.load(b"/v0/there/a"), table.load(b"/v0/there/b"))

    asyncio.run(two_at_once())
    assert table.find(b"GET", b"/v0/there/a")[1] == ("a",)
    assert not table.is_late(b"/v0/there/a")
    assert threading.current_thread().name not in loads
    assert [route.path for route in table.routes] == [HERE.path, WHOLE.path, THERE.path]


def test_a_route_that_is_written_out_wins_over_a_parameter(table: RouteTable) -> None:
    assert table.find(b"GET", b"/v0/here/whole")[0].summary == "written out"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path / "data") as running:
        yield running


def test_a_server_opens_kafkas_log_for_its_first_client(broker: Broker, tmp_path: Path) -> None:
    directory = tmp_path / "data" / "kafka"
    with broker.talk() as http:
        assert http.get("/v0/kafka/topics").json["topics"] == []
        assert http.get("/v0/kafka/groups").json["groups"] == []
        assert not directory.exists()
        with RawKafka(broker.kafka_port) as first, RawKafka(broker.kafka_port) as second:
            first.make_topic("orders")
            assert second.end_of("orders") == 0
        assert directory.exists()
        topics = http.get("/v0/kafka/topics").json["topics"]
        assert [topic["topic"] for topic in topics] == ["orders"]


def test_a_server_with_kafka_topics_opens_their_log_before_it_answers(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker, RawKafka(broker.kafka_port) as client:
        client.make_topic("orders")
    with running_broker(tmp_path / "data") as broker, broker.talk() as http:
        assert broker.app.kafka.store is not None
        assert len(http.get("/v0/kafka/topics").json["topics"]) == 1


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())


def test_a_protocol_that_cannot_be_loaded_now_is_loaded_for_the_next_client() -> None:
    tries: list[int] = []

    async def ask(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        try:
            return await reader.read(5)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def load() -> type[Echo]:
        await asyncio.sleep(0)
        tries.append(1)
        if len(tries) == 1:
            raise OSError(24, "too many open files")
        return Echo

    async def run() -> list[bytes]:
        arrivals = Arrivals(load, Logger("test"))
        loop = asyncio.get_running_loop()
        server = await loop.create_server(arrivals.connect, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return [await ask(port), *await asyncio.gather(ask(port), ask(port)), await ask(port)]

    with captured_logs() as lines:
        assert asyncio.run(run()) == [b"", b"HELLO", b"HELLO", b"HELLO"]
    assert len(tries) == 2
    assert [line["level"] for line in lines] == ["error"]
