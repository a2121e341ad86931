"""HTTP/1.1 answers as bytes. Everything that does not change is put together once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headwater.wire.http_errors import REASON

JSON: Final = b"application/json"
_STATUS_LINE: Final = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, reason) for status, reason in REASON.items()
}
_JSON_HEAD: Final = {
    status: line + b"content-type: application/json\r\ncontent-length: "
    for status, line in _STATUS_LINE.items()
}
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"connection: close\r\n"
_KEEP: Final = b""


def json_answer(
    status: int, body: bytes, keep_alive: bool, extra: bytes = b"", *, length: int | None = None
) -> bytes:
    """A whole answer with a JSON body. `extra` is further header lines, each ended.

    With a `length` it is the beginning of an answer whose body is so long in all.
    """
    return b"%b%d\r\n%b%b\r\n%b" % (
        _JSON_HEAD[status],
        len(body) if length is None else length,
        extra,
        _KEEP if keep_alive else _CLOSE,
        body,
    )


def short_json_answer(body: bytes, prefix: bytes, number: int) -> bytes:
    """What is answered most often, at once: the same bytes as `json_answer` gives with the id of
    the request, on a connection that stays open."""
    return _SHORT % (len(body), prefix, number, body)


SHORT_HEAD: Final = _JSON_HEAD[200]
"""How such an answer begins, up to the length of its body."""
_SHORT: Final = SHORT_HEAD + b"%d\r\nx-request-id: %b-%x\r\n\r\n%b"


def answer_head(status: int, headers: Mapping[str, str], keep_alive: bool) -> bytes:
    """The status line and headers of any other answer."""
    lines = [_STATUS_LINE[status]]
    lines += [f"{name}: {value}\r\n".encode("latin-1") for name, value in headers.items()]
    lines.append(_KEEP if keep_alive else _CLOSE)
    lines.append(b"\r\n")
    return b"".join(lines)


def header_lines(headers: Mapping[str, str]) -> bytes:
    return b"".join(
        f"{name}: {value}\r\n".encode("latin-1", "replace") for name, value in headers.items()
    )
