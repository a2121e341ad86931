"""The side of a Kafka client: requests as it encodes them, responses as it decodes them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any

from headwater.wire.kafka.apis import ApiKey, ProtocolError
from headwater.wire.kafka.codec import write_request
from headwater.wire.kafka.decoding import Buffer, Decode, compile_decoder
from headwater.wire.kafka.encoding import ByteSink
from headwater.wire.kafka.messages import MESSAGES

_ROWS_MAX = 10_000_000


@cache
def _decoder(api: ApiKey, version: int) -> Decode:
    message = MESSAGES[api]
    return compile_decoder(message.response, version, flexible=message.is_flexible(version))


def encode_request(api: ApiKey, version: int, values: Mapping[str, Any]) -> bytes:
    """The body of a request, in one piece."""
    sink = ByteSink()
    write_request(sink, api, version, values)
    return b"".join(sink.finish())


def decode_response(api: ApiKey, version: int, buffer: Buffer, at: int = 0) -> dict[str, Any]:
    """The body of a response that begins at this byte."""
    try:
        body: dict[str, Any] = _decoder(api, version)(buffer, at, [_ROWS_MAX])[0]
        return body
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"a message is cut off after {len(buffer) - at} bytes") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a text that is no UTF-8: {error.reason}") from error
