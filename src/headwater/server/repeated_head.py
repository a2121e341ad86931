"""A request whose head is, byte for byte, that of the request before on its connection.

Clients send the same request line and headers again and again; only the body changes. The same
bytes read the same, so they are read once. Anything that is not wholly the same, or comes in
pieces, goes through the parser.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import httptools

_END: Final = b"\r\n\r\n"


class RepeatedHead(NamedTuple):
    head: bytes
    size: int
    """Bytes of the whole request."""
    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    keep_alive: bool

    def begins(self, data: bytes) -> bool:
        """True when these bytes are exactly one request with this head."""
        return len(data) == self.size and data.startswith(self.head)


def head_of(
    data: bytes,
    body_bytes: int,
    parser: httptools.HttpRequestParser,
    target: bytes,
    headers: dict[bytes, bytes],
) -> RepeatedHead | None:
    """What to remember of a request that `data` is exactly one of; None when it is not sure."""
    head = data[: len(data) - body_bytes]
    if (
        not head.endswith(_END)
        or head.find(_END) != len(head) - len(_END)
        or headers.get(b"content-length", b"") != b"%d" % body_bytes
        or b"transfer-encoding" in headers
        or b"expect" in headers
        or b"upgrade" in headers
    ):
        return None
    method, keep_alive = parser.get_method(), parser.should_keep_alive()
    return RepeatedHead(head, len(data), method, target, headers, keep_alive)
