"""JSON values as machines keep them: canonical bytes, bounded in size and depth.

Canonical means sorted keys and no spaces, so equal values have equal bytes. Only module that says
how a context or payload becomes bytes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headwater.core.errors import InvalidRequestError
from headwater.core.json_text import json_text
from headwater.core.limits import IDEMPOTENCY_KEY_BYTES_MAX, INTEGER_MAX
from headwater.core.units import MIB
from headwater.model.machines.errors import bad_request

VALUE_BYTES_MAX: Final = 1 * MIB
"""A context, a payload or a definition."""
DEPTH_MAX: Final = 100
OFFSET_MAX: Final = 2**64 - 1
EMPTY: Final = b"{}"

_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def object_bytes(value: object, what: str) -> bytes:
    """The canonical bytes of a JSON object; MachineError when it is none or too large."""
    if not isinstance(value, dict):
        raise bad_request(f"{what} must be a JSON object")
    try:
        encoded = json_text(value, what, _encode)
    except InvalidRequestError as error:
        raise bad_request(str(error)) from error
    if len(encoded) > VALUE_BYTES_MAX:
        raise bad_request(
            f"{what} has {len(encoded)} bytes; {VALUE_BYTES_MAX} are taken at most",
            bytes=len(encoded),
        )
    if len(encoded) > 2 * DEPTH_MAX:  # shorter ones have no room to be that deep
        _check_depth(encoded, value, what)
    return encoded


def object_of(encoded: bytes) -> dict[str, Any]:
    return _decode(encoded)


def _check_depth(encoded: bytes, value: object, what: str) -> None:
    """What is nested too deep could be written and then not be read back."""
    if encoded.count(b"{") + encoded.count(b"[") <= DEPTH_MAX:
        return
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise bad_request(f"{what} is nested deeper than {DEPTH_MAX} levels")


def _inside(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else []


def checked_text(value: object, what: str, characters_max: int = 256) -> str:
    """A name, an id or a key: not empty, not long, no control characters."""
    if not isinstance(value, str) or not value:
        raise bad_request(f"{what} must be a text that is not empty")
    if len(value) > characters_max:
        raise bad_request(f"{what} is longer than {characters_max} characters")
    if not value.isprintable():
        raise bad_request(f"{what} may not contain control characters")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise bad_request(f"{what} is no valid Unicode text") from error
    return value


def checked_whole(value: object, what: str, low: int, high: int = INTEGER_MAX) -> int:
    """A whole number between two bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        upper = "or more" if high == INTEGER_MAX else f"to {high}"
        raise bad_request(f"{what} must be a whole number, {low} {upper}")
    return value


def checked_offset(value: object, what: str) -> int:
    """An offset in the log. From segment 8192 on it is above what every JSON reader keeps exact."""
    return checked_whole(value, what, 0, OFFSET_MAX)


def checked_key(value: object) -> str:
    """An idempotency key."""
    key = checked_text(value, "the idempotency key", IDEMPOTENCY_KEY_BYTES_MAX)
    if len(key.encode()) > IDEMPOTENCY_KEY_BYTES_MAX:
        raise bad_request(f"the idempotency key has more than {IDEMPOTENCY_KEY_BYTES_MAX} bytes")
    return key
