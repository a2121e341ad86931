"""RCPX, the wire of state machines, sans-I/O: frames of a header and JSON, or a JSON object a line.

Which of the two a client speaks shows in its first byte: a frame begins with the magic, a line with
a brace. HELLO may change it. Bytes come in whatever chunks the network makes of them; a length is
checked before anything is kept for it.

Around every message stands an envelope: requests with a name, answers, pushed events. Results are
JSON bytes by the time they come here; they are put into it, not printed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntFlag
from typing import Any, Final

import msgspec

from headwater.core.errors import HeadwaterError
from headwater.core.units import MIB
from headwater.format.crc32c import crc32c
from headwater.format.layout import Field, Layout

MAGIC: Final = int.from_bytes(b"RCPX", "big")
VERSION: Final = 1
PAYLOAD_BYTES_MAX: Final = 16 * MIB
HEADER: Final = Layout(
    "an RCPX frame",
    (
        Field("magic", "u32", "RCPX"),
        Field("version", "u16", "1"),
        Field("flags", "u16", "bit 0 a CRC is there, bit 2 of a stream, bit 3 its end"),
        Field("extension_bytes", "u16", "length of the header's extension, which is passed over"),
        Field("payload_bytes", "u32", "length of the JSON, at most 16 MiB"),
        Field("crc32c", "u32", "CRC32C of the JSON; 0 without bit 0"),
    ),
    tail=(
        ("extension_bytes", "extension", "for later versions"),
        ("payload_bytes", "payload", "one JSON object"),
    ),
    big_endian=True,
)
_pack = HEADER.packer.pack
_unpack = HEADER.packer.unpack_from
_HEADER_BYTES: Final = HEADER.size
_encode = msgspec.json.Encoder().encode
EMPTY: Final = msgspec.Raw(b"{}")
ID_CHARACTERS_MAX: Final = 256


class RcpxFlag(IntFlag):
    CRC = 1
    STREAM = 4
    END = 8


_UNDEFINED: Final = 0xFFFF & ~int(RcpxFlag.CRC | RcpxFlag.STREAM | RcpxFlag.END)
_CRC: Final = int(RcpxFlag.CRC)
"""Plain: enum arithmetic costs more than the checksum of a short payload."""


class WireMode(Enum):
    """How messages follow each other on a connection."""

    FRAMES = "binary_json"
    LINES = "jsonl"


class RcpxProtocolError(HeadwaterError):
    """Bytes that cannot be RCPX: nothing that follows them can be found either."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def frame(payload: bytes, flags: int = _CRC) -> bytes:
    checksum = crc32c(payload) if flags & _CRC else 0
    return _pack(MAGIC, VERSION, flags, 0, len(payload), checksum) + payload


def message(payload: bytes, mode: WireMode | None, flags: int = _CRC) -> bytes:
    """One message as its connection speaks. JSON from an encoder has no line ends in it."""
    return payload + b"\n" if mode is WireMode.LINES else frame(payload, flags)


class MessageReader:
    """Takes bytes, gives the JSON of whole messages."""

    def __init__(self, payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
        self.mode: WireMode | None = None
        """None until the first byte is there."""
        self._bytes_max = min(payload_bytes_max, PAYLOAD_BYTES_MAX)
        self._buffer = bytearray()
        self._at = 0
        self._scanned = 0
        """How far a line was searched for its end."""

    def raise_limit(self, payload_bytes_max: int) -> None:
        """The sender is known now: longer messages are taken."""
        self._bytes_max = min(payload_bytes_max, PAYLOAD_BYTES_MAX)

    @property
    def is_within(self) -> bool:
        """Part of a message is there and the rest is not."""
        return len(self._buffer) > self._at

    def only_message(self, data: bytes) -> bytes | None:
        """The JSON of these bytes when they are one sound frame and nothing waits before it.

        Most are. None says nothing of the bytes: they are to be fed.
        """
        if self.mode is not WireMode.FRAMES or len(data) < _HEADER_BYTES:
            return None
        magic, version, flags, extension, length, checksum = _unpack(data)
        if (
            magic != MAGIC
            or version != VERSION
            or extension
            or flags & _UNDEFINED
            or length != len(data) - _HEADER_BYTES
            or length > self._bytes_max
            or len(self._buffer) > self._at
        ):
            return None
        payload = data[_HEADER_BYTES:]
        return payload if not flags & _CRC or crc32c(payload) == checksum else None

    def feed(self, data: bytes) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._scanned -= self._at
            self._at = 0
        self._buffer += data

    def next_message(self) -> bytes | None:
        """The next whole message, or None when more bytes are needed."""
        if self.mode is None:
            self._recognise()
        if self.mode is WireMode.FRAMES:
            return self._next_frame()
        return None if self.mode is None else self._next_line()

    def _recognise(self) -> None:
        while self._at < len(self._buffer):
            first = self._buffer[self._at]
            if first == 0x52:  # R of RCPX
                self.mode = WireMode.FRAMES
                return
            if first == 0x7B:  # the brace of an object
                self.mode = WireMode.LINES
                return
            if first not in b" \t\r\n":
                raise RcpxProtocolError(
                    "UNSUPPORTED_PROTOCOL",
                    "neither an RCPX frame nor a line of JSON (is this port meant for "
                    "something else, or should the client use TLS?)",
                )
            self._at += 1

    def _next_frame(self) -> bytes | None:
        buffer, at = self._buffer, self._at
        have = len(buffer) - at
        if have < HEADER.size:
            if bytes(buffer[at : at + 4]) != b"RCPX"[:have]:
                raise RcpxProtocolError("BAD_REQUEST", "this is not the beginning of a frame")
            return None
        magic, version, flags, extension, length, checksum = _unpack(buffer, at)
        if magic != MAGIC:
            raise RcpxProtocolError("BAD_REQUEST", "this is not the beginning of a frame")
        if version != VERSION:
            raise RcpxProtocolError(
                "UNSUPPORTED_PROTOCOL", f"frames of version {version}; this server reads {VERSION}"
            )
        if flags & _UNDEFINED:
            raise RcpxProtocolError(
                "BAD_REQUEST", f"a frame with the undefined flags 0x{flags & _UNDEFINED:04x}"
            )
        if length > self._bytes_max:
            raise self._too_long(length)
        begin = at + HEADER.size + extension
        end = begin + length
        if len(buffer) < end:
            return None
        payload = bytes(buffer[begin:end])
        if flags & _CRC and crc32c(payload) != checksum:
            raise RcpxProtocolError("BAD_REQUEST", "the CRC of a frame does not fit its payload")
        self._at = end
        return payload

    def _next_line(self) -> bytes | None:
        while True:
            begin = self._at
            end = self._buffer.find(b"\n", max(begin, self._scanned))
            length = (len(self._buffer) if end < 0 else end) - begin
            if length > self._bytes_max:
                raise self._too_long(length)
            if end < 0:
                self._scanned = len(self._buffer)
                return None
            self._at = self._scanned = end + 1
            line = bytes(self._buffer[begin:end]).strip()
            if line:
                return line

    def _too_long(self, length: int) -> RcpxProtocolError:
        return RcpxProtocolError(
            "BAD_REQUEST", f"a message of {length} bytes; at most {self._bytes_max} are taken"
        )


class Request(msgspec.Struct):
    """`params` is read by its operation."""

    op: str
    id: str | int = ""
    type: str = "request"
    params: msgspec.Raw = EMPTY


_requests = msgspec.json.Decoder(Request)


class EnvelopeError(RcpxProtocolError):
    """A message that is no request. The connection can go on; `request_id` is whose it was."""

    def __init__(self, message: str, request_id: bytes = b'""') -> None:
        super().__init__("BAD_REQUEST", message)
        self.request_id = request_id


def read_request(payload: bytes) -> Request:
    try:
        request = _requests.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EnvelopeError(f"not a request that can be read: {error}", _id_of(payload)) from error
    if request.type != "request":
        raise EnvelopeError("only messages of type request are taken", _encode(request.id))
    if isinstance(request.id, str) and len(request.id) > ID_CHARACTERS_MAX:
        raise EnvelopeError(f"an id has at most {ID_CHARACTERS_MAX} characters")
    return request


class _RequestName(msgspec.Struct):
    id: str | int = ""


_names = msgspec.json.Decoder(_RequestName)


def _id_of(payload: bytes) -> bytes:
    """Whose request could not be read, where that much can be."""
    try:
        return _encode(_names.decode(payload).id)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b'""'


def ok(request_id: bytes, result: bytes, server_time: bytes, wal_offset: int | None) -> bytes:
    """An answer. `request_id` and `result` are JSON, `server_time` the inside of a JSON text."""
    if wal_offset is None:
        return _OK % (request_id, result, server_time)
    return _OK_AT % (request_id, result, server_time, wal_offset)


_BEGINNING: Final = b'{"type":"response","id":%b,"status":"ok","result":%b,'
_OK: Final = _BEGINNING + b'"meta":{"server_time":"%b"}}'
_OK_AT: Final = _BEGINNING + b'"meta":{"server_time":"%b","wal_offset":%d}}'


def failed(
    request_id: bytes, code: str, text: str, *, retryable: bool, details: Mapping[str, Any] | None
) -> bytes:
    error = {"code": code, "message": text, "retryable": retryable, "details": dict(details or {})}
    return b'{"type":"response","id":%b,"status":"error","error":%b}' % (request_id, _encode(error))


def event(subscription_id: bytes, body: bytes) -> bytes:
    """A pushed event: `told` is a JSON object with at least one field."""
    return b'{"type":"event","subscription_id":%b,%b' % (subscription_id, body[1:])
