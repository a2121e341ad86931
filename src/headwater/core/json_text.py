"""Python values as JSON: one rule for the client, the embedded library and the machines.

Numbers, texts, booleans, None, lists and mappings are what JSON has. `datetime`, `date`, `time`,
`timedelta`, `UUID` and `Decimal` become texts, `bytes` base64 text, an `Enum` its value, sets and
tuples lists, dataclasses and msgspec structs objects; keys that are numbers become texts. NaN and
infinities have no JSON and are refused: a value that silently came back as null would be lost.
Anything else is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from headwater.core.errors import InvalidRequestError

_encode: Final = msgspec.json.Encoder().encode
_plain: Final = msgspec.to_builtins
_ATOMS: Final = (str, int, bool, type(None), bytes, bytearray, memoryview, msgspec.Raw)
_MEANING: Final = "JSON has no NaN and no infinity; write None, or a text, in its place"


def json_text(value: Any, what: str, encode: Callable[[Any], bytes] = _encode) -> bytes:
    """`value` as JSON. InvalidRequestError, which names it `what`, where that cannot be."""
    try:
        encoded = encode(value)
        _check_finite(value, encoded)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidRequestError(f"{what} cannot be written as JSON: {error}") from error
    return encoded


def _check_finite(value: Any, encoded: bytes) -> None:
    # The encoder writes a float of that kind as null and a decimal as "NaN" or "Infinity"; values
    # that have none of these in them, most of them, are not walked.
    if b"null" in encoded or b"NaN" in encoded or b"Infinity" in encoded:
        _walk(value)


def _walk(value: Any) -> None:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, _ATOMS):
            continue
        if isinstance(each, float):
            if not math.isfinite(each):
                raise ValueError(_MEANING)
        elif isinstance(each, Decimal):
            if not each.is_finite():
                raise ValueError(_MEANING)
        elif isinstance(each, Mapping):
            waiting += each.values()
        elif isinstance(each, (list, tuple, set, frozenset)):
            waiting += each
        else:  # an enum, a dataclass, a struct, a date
            waiting.append(_plain(each, builtin_types=(Decimal,), enc_hook=_nothing))


def _nothing(_: object) -> None:
    """JSON that was made before, inside another value, has no number that is not finite."""
