"""The body of a request: its media type, its compression, its text."""

from __future__ import annotations

import zlib
from typing import Final

from headwater.core.errors import InvalidRequestError
from headwater.core.units import MIB
from headwater.server.http.exchange import Exchange
from headwater.wire.http_errors import HttpError

_GZIP: Final = 16 + zlib.MAX_WBITS
_STEP_BYTES: Final = 256 * 1024
_HARMLESS_BYTES: Final = 8 * MIB
"""Records that are much alike pack very well; up to here, however well, they are taken."""


def body_of(exchange: Exchange) -> bytes | bytearray:
    """The body as JSON text, unpacked. A bomb is refused while it grows, not after."""
    body = exchange.body
    if exchange.head.is_plain_json and body.isascii():
        return body
    kind = exchange.headers.get(b"content-type")
    if kind is not None and body and kind.partition(b";")[0].strip().lower() != b"application/json":
        raise HttpError(
            "unsupported_media_type",
            "send application/json (with curl: --json, or -H 'content-type: application/json')",
        )
    encoding = exchange.headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
        body = _unpacked(exchange, encoding.strip().lower())
    if not body.isascii():
        try:
            body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidRequestError("the body is not valid UTF-8") from error
    return body


def _unpacked(exchange: Exchange, encoding: bytes) -> bytes:
    if encoding != b"gzip":
        raise HttpError("unsupported_media_type", "bodies may be packed with gzip only")
    limits = exchange.limits
    most = min(limits.body_bytes, max(_HARMLESS_BYTES, len(exchange.body) * limits.expansion_ratio))
    unpacker = zlib.decompressobj(_GZIP)
    chunks: list[bytes] = []
    size = 0
    try:
        rest: bytes = bytes(exchange.body)
        while not unpacker.eof:
            chunk = unpacker.decompress(rest, _STEP_BYTES)
            if not chunk and not rest:
                break  # all of it was read, and it is not the end
            size += len(chunk)
            if size > most:
                raise HttpError("payload_too_large", f"the body unpacks to over {most} bytes")
            chunks.append(chunk)
            rest = unpacker.unconsumed_tail
    except zlib.error as error:
        raise InvalidRequestError("the body is not gzip") from error
    if not unpacker.eof:
        raise InvalidRequestError("the packed body ends too early")
    if unpacker.unused_data:
        raise InvalidRequestError("something follows the packed body")
    return b"".join(chunks)
