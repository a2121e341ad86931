"""Messages to dicts and back: `decode_request`, `encode_response`, and what a client sends.

The function for a kind of request and a version is made when it is first needed, and kept.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from headwater.core.errors import InvariantError
from headwater.wire.kafka.apis import ApiKey, ProtocolError
from headwater.wire.kafka.decoding import Buffer, Decode, compile_decoder
from headwater.wire.kafka.encoding import ByteSink, Encode, compile_encoder
from headwater.wire.kafka.messages import MESSAGES

REQUEST_ROWS_MAX: Final = 400_000
"""Of all arrays of a request together: room for the 100,000 topics one machine may have."""


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
