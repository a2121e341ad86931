"""Messages to dicts and back: `decode_request`, `encode_response`, and what a client sends.

The function for a kind of request and a version is made when it is first needed, and kept.

Before the body stands a header. A request has its kind, version, a number to answer with, and the
client's name; in flexible versions tagged fields follow. The name is a plain string in every
version. A response repeats the number. The answer to ApiVersions never has tagged fields in its
header, because the client does not know yet which versions the server has.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from headwater.core.errors import InvariantError
from headwater.native import compiled
from headwater.wire.kafka.apis import ApiKey, ProtocolError, known_api
from headwater.wire.kafka.decoding import Buffer, Decode, compile_decoder
from headwater.wire.kafka.encoding import ByteSink, Chunk, Encode, compile_encoder
from headwater.wire.kafka.fields import read_unsigned
from headwater.wire.kafka.messages import MESSAGES

REQUEST_ROWS_MAX: Final = 400_000
"""Of all arrays of a request together: room for the 100,000 topics one machine may have."""
_native: Final = compiled("batches")
"""Writes the answers of produces that went well. The others are written by the table."""
_FIXED: Final = struct.Struct(">hhih")
_KIND: Final = struct.Struct(">h")
_SIZE: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\x00"
_TAGS_MAX: Final = 100


@cache
def _decoder(api: ApiKey, version: int) -> Decode:
    message = MESSAGES[api]
    return compile_decoder(message.request, version, flexible=message.is_flexible(version))


@cache
def _encoder(api: ApiKey, version: int, of_request: bool) -> Encode:
    message = MESSAGES[api]
    fields = message.request if of_request else message.response
    return compile_encoder(fields, version, flexible=message.is_flexible(version))


def decode_request(api: ApiKey, version: int, buffer: Buffer, at: int = 0) -> dict[str, Any]:
    """The body of a request that begins at this byte. The version must be a supported one.

    Bytes left over at the end are no error: Kafka passes over them too, and some clients pad.
    """
    try:
        body: dict[str, Any] = _decoder(api, version)(buffer, at, [REQUEST_ROWS_MAX])[0]
        return body
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"a message is cut off after {len(buffer) - at} bytes") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a text that is no UTF-8: {error.reason}") from error


@cache
def _row_encoder(api: ApiKey, version: int, array: str) -> Encode:
    message = MESSAGES[api]
    fields = message.response
    for name in array.split("."):
        (field,) = (each for each in fields if each.name == name)
        fields = field.rows
    return compile_encoder(fields, version, flexible=message.is_flexible(version))


def encode_row(api: ApiKey, version: int, array: str, values: Mapping[str, Any]) -> bytes:
    """One row of an array of a response, which can be given there instead of its values.

    Of an array in the rows of another: `topics.configs`.
    """
    sink = ByteSink()
    _encode(_row_encoder(api, version, array), sink, values)
    return b"".join(sink.finish())


def write_request(sink: ByteSink, api: ApiKey, version: int, values: Mapping[str, Any]) -> None:
    _encode(_encoder(api, version, True), sink, values)


def write_response(sink: ByteSink, api: ApiKey, version: int, values: Mapping[str, Any]) -> None:
    _encode(_encoder(api, version, False), sink, values)


def _encode(encode: Encode, sink: ByteSink, values: Mapping[str, Any]) -> None:
    try:
        encode(sink, values)
    except struct.error as error:
        raise InvariantError(f"a value does not fit its field: {error}") from error


def encode_response(api: ApiKey, version: int, values: Mapping[str, Any]) -> bytes:
    """The body of a response, in one piece."""
    sink = ByteSink()
    write_response(sink, api, version, values)
    return b"".join(sink.finish())


class RequestHeader(NamedTuple):
    """Of any request, known or not."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int
    """Where the body begins. Meaningless for kinds and versions that are not known."""


def request_kind(frame: Buffer) -> int:
    """The kind of a request, known or not, without reading on."""
    (kind,) = _KIND.unpack_from(frame)
    return int(kind)


def read_request_header(frame: Buffer) -> RequestHeader:
    """The header of a request. Unknown kinds and versions are read too."""
    try:
        api_key, version, correlation_id, name_bytes = _FIXED.unpack_from(frame)
        at = _FIXED.size
        if name_bytes < 0:
            client_id = None
        elif at + name_bytes > len(frame):
            raise ProtocolError(f"a client's name of {name_bytes} bytes that are not there")
        else:
            client_id = str(frame[at : at + name_bytes], "utf-8", "replace")
            at += name_bytes
        api = known_api(api_key)
        if api is not None and version >= 0 and MESSAGES[api].is_flexible(version):
            at = _pass_tags(frame, at)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"a request of {len(frame)} bytes has no whole header") from error
    return RequestHeader(api_key, version, correlation_id, client_id, at)


def _pass_tags(frame: Buffer, at: int) -> int:
    count, at = read_unsigned(frame, at)
    if count > _TAGS_MAX:
        raise ProtocolError(f"{count} tagged fields in the header of a request")
    for _ in range(count):
        _, at = read_unsigned(frame, at)
        size, at = read_unsigned(frame, at)
        at += size
    if at > len(frame):
        raise ProtocolError("a tagged field of a header that is not all there")
    return at


def response_frame(
    api: ApiKey, version: int, correlation_id: int, values: Mapping[str, Any]
) -> list[Chunk]:
    """A whole response with its size: chunks to send in order, records not copied."""
    if api is ApiKey.PRODUCE and _native is not None:
        plain: bytes | None = _native.write_produced(version, correlation_id, values)
        if plain is not None:
            return [plain]
    sink = ByteSink(_SIZE.pack(0) + _SIZE.pack(correlation_id))
    if MESSAGES[api].is_flexible(version) and api is not ApiKey.API_VERSIONS:
        sink.open += _NO_TAGS
    first = sink.open
    write_response(sink, api, version, values)
    chunks = sink.finish()
    _SIZE.pack_into(first, 0, sum(map(len, chunks)) - _SIZE.size)
    return chunks


def request_frame(
    api: ApiKey,
    version: int,
    correlation_id: int,
    client_id: str | None,
    values: Mapping[str, Any],
) -> bytes:
    """A whole request with its size, as a client sends it."""
    name = b"" if client_id is None else client_id.encode()
    name_bytes = -1 if client_id is None else len(name)
    sink = ByteSink(_SIZE.pack(0) + _FIXED.pack(api, version, correlation_id, name_bytes) + name)
    if MESSAGES[api].is_flexible(version):
        sink.open += _NO_TAGS
    first = sink.open
    write_request(sink, api, version, values)
    chunks = sink.finish()
    _SIZE.pack_into(first, 0, sum(map(len, chunks)) - _SIZE.size)
    return b"".join(chunks)


def response_body_at(api: ApiKey, version: int, frame: Buffer) -> tuple[int, int]:
    """The number a response answers, and where its body begins. For clients."""
    try:
        (correlation_id,) = _SIZE.unpack_from(frame)
        at = _SIZE.size
        if MESSAGES[api].is_flexible(version) and api is not ApiKey.API_VERSIONS:
            at = _pass_tags(frame, at)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"a response of {len(frame)} bytes has no whole header") from error
    return correlation_id, at
