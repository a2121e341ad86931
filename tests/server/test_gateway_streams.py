"""A client's connection as the sequencer has it, and what a gateway reports of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from headwater.server.connection import Connection
from headwater.server.gateway.channel import Channel
from headwater.server.gateway.forwarder import Outflow
from headwater.server.gateway.stream_transport import StreamTransport
from headwater.server.gateway.uplink import Uplink
from headwater.wire.channel import BUFFER, ChannelKind


class Frames:
    """In place of a channel."""

    def __init__(self) -> None:
        self.sent: list[tuple[ChannelKind, int, bytes, int]] = []

    def send(self, kind: ChannelKind, stream: int, payload: bytes = b"", flags: int = 0) -> None:
        self.sent.append((kind, stream, payload, flags))

    def send_parts(self, kind: ChannelKind, stream: int, parts: Sequence[bytes]) -> None:
        self.send(kind, stream, b"".join(parts))

    @property
    def kinds(self) -> list[ChannelKind]:
        return [kind for kind, *_ in self.sent]


class Pauses:
    """A writer that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


class Ending:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def frames() -> Frames:
    return Frames()


@pytest.fixture
def writer() -> Pauses:
    return Pauses()


@pytest.fixture
def ending() -> Ending:
    return Ending()


@pytest.fixture
def transport(frames: Frames, writer: Pauses, ending: Ending) -> StreamTransport:
    made = StreamTransport(cast(Channel, frames), 7, ending, {"peername": ("10.0.0.1", 5)})
    made.set_writer(writer)
    made.set_write_buffer_limits(high=1_000)
    frames.sent.clear()
    return made


def test_a_writer_is_paused_until_its_client_took_most_of_it(
    transport: StreamTransport, writer: Pauses
) -> None:
    transport.write(b"x" * 1_000)
    assert writer.told == []
    transport.write(b"x")
    assert (writer.told, transport.get_write_buffer_size()) == (["pause"], 1_001)
    transport.taken(750)
    assert writer.told == ["pause"]
    transport.taken(1)
    assert (writer.told, transport.get_write_buffer_size()) == (["pause", "resume"], 250)


def test_what_is_written_is_sent_as_it_was_then(transport: StreamTransport, frames: Frames) -> None:
    buffer = bytearray(b"before")
    transport.write(buffer)
    buffer[:] = b"behind"
    transport.writelines([b"a", memoryview(b"bc"), b""])
    transport.write(b"")
    assert [payload for _, _, payload, _ in frames.sent] == [b"before", b"abc"]


def test_limits_of_the_buffer_are_the_gateways_too(
    transport: StreamTransport, frames: Frames
) -> None:
    transport.set_write_buffer_limits(high=77)
    assert frames.sent == [(ChannelKind.BUFFER, 7, BUFFER.packer.pack(77), 0)]


def test_reading_is_told_when_it_changes_and_what_waited_is_read(
    transport: StreamTransport, frames: Frames
) -> None:
    resumed = Ending()
    transport.on_reading = resumed
    transport.resume_reading()
    assert frames.sent == []
    transport.pause_reading()
    transport.pause_reading()
    assert not transport.is_reading()
    transport.resume_reading()
    assert frames.kinds == [ChannelKind.READING] * 2
    assert ([flags > 0 for *_, flags in frames.sent], resumed.count) == ([False, True], 1)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_it_ends_once_and_nothing_follows(
    transport: StreamTransport, frames: Frames, ending: Ending, how: str
) -> None:
    getattr(transport, how)()
    transport.close()
    transport.write(b"more")
    transport.pause_reading()
    assert frames.kinds == [ChannelKind.CLOSE if how == "close" else ChannelKind.ABORT]
    assert (ending.count, transport.is_closing()) == (1, True)


def test_a_connection_that_its_gateway_ended_is_told_nothing(
    transport: StreamTransport, frames: Frames, ending: Ending
) -> None:
    transport.lost()
    transport.write(b"more")
    transport.close()
    assert (frames.sent, ending.count) == ([], 0)


class Reports:
    """In place of the gateway's end of the channel."""

    def __init__(self) -> None:
        self.taken_bytes: list[int] = []

    def taken(self, stream: int, size: int) -> None:
        assert stream == 7
        self.taken_bytes.append(size)


class Client:
    """A connection whose socket takes what a test says."""

    def __init__(self) -> None:
        self.paused = self.is_gone = False
        self.waiting = 0
        self.transport: Any = self

    def get_write_buffer_size(self) -> int:
        return self.waiting


def test_a_gateway_reports_all_at_once_while_its_client_keeps_up() -> None:
    reports, client = Reports(), Client()
    outflow = Outflow(cast(Uplink, reports), 7, cast(Connection, client))
    client.waiting = 50
    outflow.add(100)
    outflow.report()
    assert reports.taken_bytes == [100]


def test_of_a_slow_client_it_reports_what_left_for_the_socket() -> None:
    reports, client = Reports(), Client()
    outflow = Outflow(cast(Uplink, reports), 7, cast(Connection, client))
    client.paused, client.waiting = True, 300
    outflow.add(300)
    assert reports.taken_bytes == []
    for client.waiting in (200, 200, 50):
        outflow.report()
    client.paused = False
    outflow.report()
    assert reports.taken_bytes == [100, 150, 50]
