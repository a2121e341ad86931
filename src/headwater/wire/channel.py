"""The channel between a gateway and the sequencer: frames with a fixed header, both ways.

Each frame is about one stream: a request with its answer, or a connection whose bytes go through
as they are. A gateway numbers the streams of its channel. A side that sees a frame which makes no
sense closes the channel; nothing that follows such a frame can be found either.

Both sides come from one start of one program, so `HELLO` carries a version only to make sure of
that: a later layout gets a later number.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

from headwater.core.errors import HeadwaterError
from headwater.core.units import GIB
from headwater.format.layout import Field, Layout

CHANNEL_MAGIC: Final = int.from_bytes(b"HWCH", "big")
CHANNEL_VERSION: Final = 1
PAYLOAD_BYTES_MAX: Final = 1 * GIB
"""More than any request or answer; a length beyond is damage."""
HEADS_MAX: Final = 4_096
"""Heads that the sequencer keeps for one gateway; their numbers are below."""


class ChannelKind(IntEnum):
    """What a frame says. G: sent by gateways, S: by the sequencer."""

    HELLO = 1
    """G, S. The first of each side."""
    HEAD = 2
    """G. A head of a request, kept under a number until that number is used again."""
    REQUEST = 3
    """G. A request whose head was sent before. Opens a stream."""
    ANSWER = 4
    """S. A whole answer. Ends the stream."""
    BEGIN = 5
    """S. The head of an answer without end; what follows comes as DATA."""
    DATA = 6
    """G, S. Bytes of a stream."""
    TAKEN = 7
    """G. The client took so many bytes of DATA."""
    READING = 8
    """S. Read the client, or read it no more."""
    BUFFER = 9
    """S. How many bytes the gateway may hold for the client before it says no more TAKEN."""
    FINISH = 10
    """S. The last byte of an HTTP connection was sent. Ends the stream."""
    CLOSE = 11
    """S. Send what is there, then end the connection. Ends the stream."""
    ABORT = 12
    """S. End the connection at once. Ends the stream."""
    GONE = 13
    """G. The client is. Ends the stream."""
    END_OF_INPUT = 14
    """G. The client will send no more; it may still wait for its answer."""
    OPEN = 15
    """G. A connection whose bytes go through as they are. Opens a stream."""
    TURN = 16
    """G. The durable writes of one turn, as columns."""
    TURN_REPLY = 17
    """S. What became of them."""
    PAGE = 18
    """S. A whole answer whose records the gateway prints from their files, see `wire.page`. Ends
    the stream."""
    DRAINING = 19
    """G. All that clients had sent before this gateway was told to stop came before this."""


class ChannelFlag(IntFlag):
    """What a bit means depends on the kind of the frame."""

    CLOSE = 1
    """ANSWER: the connection ends behind it. HEAD: the client asked for that."""
    UPGRADE = 2
    """REQUEST: for a WebSocket. BEGIN: the answer has no head of ours; all of it is DATA."""
    ON = 4
    """READING: read it."""
    WHOLE = 8
    """REQUEST: answered with no PAGE, whose files were gone."""


CHANNEL_FRAME: Final = Layout(
    "a frame of the channel",
    (
        Field("payload_bytes", "u32", "length of what follows the header"),
        Field("kind", "u16", "what it says"),
        Field("flags", "u16", "see `ChannelFlag`"),
        Field("stream", "u64", "what it is about; 0 for the channel itself"),
    ),
    tail=(("payload_bytes", "payload", "by kind"),),
)
HELLO: Final = Layout(
    "HELLO",
    (
        Field("magic", "u32", "HWCH"),
        Field("version", "u16", "1"),
        Field("slot", "u16", "which gateway"),
        Field("pid", "u32", "of the process that says so"),
    ),
)
HEAD: Final = Layout(
    "HEAD",
    (
        Field("number", "u32", "under which it is kept; 0 for the next request only"),
        Field("method_bytes", "u16", ""),
        Field("headers", "u16", "how many"),
        Field("target_bytes", "u32", ""),
    ),
    tail=(
        ("method_bytes", "method", ""),
        ("target_bytes", "target", ""),
        ("...", "headers", "each: u16 and u32, the lengths of name and value, then both"),
    ),
)
HEADER_LENGTHS: Final = Layout(
    "a header", (Field("name_bytes", "u16", ""), Field("value_bytes", "u32", ""))
)
REQUEST: Final = Layout(
    "REQUEST",
    (
        Field("started_us", "u64", "when it had come, by the machine's monotonic clock"),
        Field("behind", "u64", "the unanswered request before it on its connection, or 0"),
        Field("head", "u32", "the number of its head"),
    ),
    tail=(("...", "body", "with UPGRADE: what followed the head"),),
)
TAKEN: Final = Layout("TAKEN", (Field("bytes", "u64", "since the last of its stream"),))
BUFFER: Final = Layout("BUFFER", (Field("bytes", "u64", ""),))
OPEN: Final = Layout(
    "OPEN",
    (
        Field("protocol", "u16", "which port: see `BytePort`"),
        Field("own_port", "u16", "that the client reached"),
        Field("peer_port", "u16", ""),
        Field("own_host_bytes", "u16", ""),
        Field("peer_host_bytes", "u16", ""),
    ),
    tail=(("own_host_bytes", "own_host", ""), ("peer_host_bytes", "peer_host", "")),
)
PAYLOAD_BYTES_MIN: Final = {
    ChannelKind.HELLO: HELLO.size,
    ChannelKind.HEAD: HEAD.size,
    ChannelKind.REQUEST: REQUEST.size,
    ChannelKind.TAKEN: TAKEN.size,
    ChannelKind.BUFFER: BUFFER.size,
    ChannelKind.OPEN: OPEN.size,
}
"""Of kinds whose payload begins with a table. A reader of those need not check again."""
_BYTES_MIN: Final = [
    PAYLOAD_BYTES_MIN.get(ChannelKind(n), 0) if n else 0 for n in range(len(ChannelKind) + 1)
]
_pack = CHANNEL_FRAME.packer.pack
_unpack = CHANNEL_FRAME.packer.unpack_from
_HEADER_BYTES: Final = CHANNEL_FRAME.size
_KINDS: Final = len(ChannelKind)


class BytePort(IntEnum):
    """Ports whose connections go through the channel as they are."""

    KAFKA = 1
    RCPX = 2


class ChannelError(HeadwaterError):
    """A frame that cannot be."""


class ChannelFrame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame_header(kind: int, stream: int, payload_bytes: int, flags: int = 0) -> bytes:
    return _pack(payload_bytes, kind, flags, stream)


class ChannelReader:
    """Takes bytes as they come, gives whole frames."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = _HEADER_BYTES
        """So many bytes make the next frame, as far as is known."""

    def feed(self, data: bytes) -> list[ChannelFrame]:
        """The frames that are whole now. Raises `ChannelError`."""
        if self._chunks:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._chunks)
            self._chunks = []
        frames: list[ChannelFrame] = []
        at, end, self._need = 0, len(data), _HEADER_BYTES
        while end - at >= _HEADER_BYTES:
            payload_bytes, kind, flags, stream = _unpack(data, at)
            _check(kind, payload_bytes)
            begin = at + _HEADER_BYTES
            if end - begin < payload_bytes:
                self._need = _HEADER_BYTES + payload_bytes
                break
            at = begin + payload_bytes
            frames.append(ChannelFrame(kind, flags, stream, data[begin:at]))
        if at < end:
            self._chunks = [data[at:]]
            self._have = end - at
        return frames


def _check(kind: int, payload_bytes: int) -> None:
    if not 1 <= kind <= _KINDS:
        raise ChannelError(f"there is no kind {kind}")
    if not _BYTES_MIN[kind] <= payload_bytes <= PAYLOAD_BYTES_MAX:
        raise ChannelError(f"a {ChannelKind(kind).name} cannot have {payload_bytes} bytes")


# -- what payloads say


def hello(slot: int, pid: int) -> bytes:
    return HELLO.packer.pack(CHANNEL_MAGIC, CHANNEL_VERSION, slot, pid)


def read_hello(payload: bytes) -> tuple[int, int]:
    """Slot and pid of who says so, if it speaks as we do."""
    magic, version, slot, pid = HELLO.packer.unpack_from(payload)
    if (magic, version) != (CHANNEL_MAGIC, CHANNEL_VERSION):
        raise ChannelError(f"it speaks version {version}, and {CHANNEL_VERSION} is spoken here")
    return slot, pid


def head_payload(
    number: int, method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    pack = HEADER_LENGTHS.packer.pack
    rows = [pack(len(name), len(value)) + name + value for name, value in headers]
    fixed = HEAD.packer.pack(number, len(method), len(rows), len(target))
    return b"".join((fixed, method, target, *rows))


def read_head(payload: bytes) -> tuple[int, bytes, bytes, dict[bytes, bytes]]:
    """Its number, the method, the target, and the headers."""
    number, method_bytes, count, target_bytes = HEAD.packer.unpack_from(payload)
    slices = _Slices(payload, HEAD.size)
    method, target = slices.take(method_bytes), slices.take(target_bytes)
    headers = {}
    for _ in range(count):
        lengths = slices.take(HEADER_LENGTHS.size)
        name_bytes, value_bytes = HEADER_LENGTHS.packer.unpack(lengths)
        name = slices.take(name_bytes)
        headers[name] = slices.take(value_bytes)
    slices.end()
    return number, method, target, headers


def open_payload(port: BytePort, own: tuple[str, int], peer: tuple[str, int]) -> bytes:
    own_host, peer_host = own[0].encode(), peer[0].encode()
    fixed = OPEN.packer.pack(port, own[1], peer[1], len(own_host), len(peer_host))
    return fixed + own_host + peer_host


def read_open(payload: bytes) -> tuple[BytePort, tuple[str, int], tuple[str, int]]:
    """Which port, the address that the client reached, and the client's own."""
    protocol, own_port, peer_port, own_bytes, peer_bytes = OPEN.packer.unpack_from(payload)
    slices = _Slices(payload, OPEN.size)
    try:
        port = BytePort(protocol)
        own, peer = slices.take(own_bytes).decode(), slices.take(peer_bytes).decode()
    except ValueError as error:
        raise ChannelError(f"an OPEN that cannot be: {error}") from error
    slices.end()
    return port, (own, own_port), (peer, peer_port)


class _Slices:
    """Reads a payload from front to end."""

    def __init__(self, payload: bytes, begin: int) -> None:
        self._payload = payload
        self._at = begin

    def take(self, size: int) -> bytes:
        begin = self._at
        self._at += size
        if self._at > len(self._payload):
            raise ChannelError("a payload ends too early")
        return self._payload[begin : self._at]

    def end(self) -> None:
        if self._at != len(self._payload):
            raise ChannelError("something follows the end of a payload")
