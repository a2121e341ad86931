"""Server-sent events: frames, and cursors that a client hands back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headwater.core.errors import InvalidRequestError

RETRY: Final = b"retry: 2000\n\n"
HEADERS: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}
CURSOR_BYTES_MAX: Final = 96 * 1024
"""256 topics with the longest names; a request's headers have room for it."""
_cursors = msgspec.json.Decoder(dict[str, int])


def event(name: bytes, data: bytes, event_id: bytes | None = None) -> bytes:
    return frame(name, data_lines(data), event_id)


def data_lines(data: bytes) -> bytes:
    """A payload may be JSON on several lines; none of them can end the frame early."""
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return b"data: " + data


def frame(name: bytes, lines: bytes, event_id: bytes | None = None) -> bytes:
    if event_id is None:
        return b"event: %b\n%b\n\n" % (name, lines)
    return b"event: %b\nid: %b\n%b\n\n" % (name, event_id, lines)


def json_event(name: bytes, data: Any, event_id: bytes | None = None) -> bytes:
    return event(name, msgspec.json.encode(data), event_id)


def heartbeat(now_ms: int) -> bytes:
    return b": hb %d\n\n" % now_ms


def encode_cursor(cursors: Mapping[str, int]) -> bytes:
    """base64url of the JSON map topic -> seq."""
    return base64.urlsafe_b64encode(msgspec.json.encode(dict(cursors))).rstrip(b"=")


def decode_cursor(text: str) -> dict[str, int]:
    if len(text) > CURSOR_BYTES_MAX:
        raise InvalidRequestError("Last-Event-ID is too long")
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        cursors = _cursors.decode(base64.urlsafe_b64decode(padded))
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidRequestError("Last-Event-ID is not one of ours") from error
    if any(seq < 0 for seq in cursors.values()):
        raise InvalidRequestError("Last-Event-ID is not one of ours")
    return cursors
