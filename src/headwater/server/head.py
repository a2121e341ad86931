"""What a request says before its body, and what follows from that alone.

Clients send the same request line and headers again and again; only the body changes. The same
bytes mean the same, so they are read once, and route, key and media type are looked up once.
Anything that is not wholly the same, or comes in pieces, goes through the parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import httptools

if TYPE_CHECKING:
    from headwater.server.keys import ApiKey
    from headwater.server.quotas import Usage
    from headwater.server.routing import Route

_END: Final = b"\r\n\r\n"
_KNOWN_MAX: Final = 4
"""A worker of a queue takes turns between three requests: write, claim, ack."""
_KNOWN_BYTES_MAX: Final = 4_096
"""Longer heads are not worth keeping for every connection."""


class Head:
    """Read by many exchanges; the app fills in the rest when it first lets one of them in."""

    __slots__ = (
        "headers",
        "is_plain_json",
        "is_plain_write",
        "keep_alive",
        "key",
        "method",
        "parameters",
        "path",
        "query",
        "query_bytes",
        "route",
        "takes_gzip",
        "usage",
    )

    def __init__(
        self, method: bytes, target: bytes, headers: dict[bytes, bytes], *, keep_alive: bool
    ) -> None:
        path, _, query = target.partition(b"?")
        self.method = method
        self.path = path if path.startswith(b"/") else _path_of(path)
        self.query_bytes = query
        self.query: dict[str, str] | None = None if query else {}
        """Its parameters, once somebody asked for one; nobody changes them."""
        self.headers = headers
        self.keep_alive = keep_alive
        self.is_plain_json = (
            headers.get(b"content-type") == b"application/json"
            and b"content-encoding" not in headers
        )
        """Nothing has to be asked about the body before it is read as JSON."""
        self.is_plain_write = False
        """Asks for nothing but to store what is in the body; known once it was let in."""
        self.takes_gzip: bool | None = None
        """None until somebody asked."""
        self.route: Route | None = None
        """None until a request with this head was let in."""
        self.parameters: tuple[str, ...] = ()
        self.key: ApiKey | None = None
        self.usage: Usage | None = None

    def begin_use(self) -> None:
        """A request of its key is under way; raises when that are too many."""
        assert self.usage is not None, "let in first"
        self.usage.begin()

    def end_use(self) -> None:
        assert self.usage is not None, "let in first"
        self.usage.end()


class RepeatedHead(NamedTuple):
    data: bytes
    size: int
    """Bytes of the whole request."""
    head: Head
    head_bytes: int


class KnownHeads:
    """The last few heads of a connection that are likely to come again."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: list[RepeatedHead] = []

    def find(self, data: bytes) -> RepeatedHead | None:
        """The head of these bytes, when they are exactly one request with a head that is known."""
        size = len(data)
        for known in self._known:
            if size == known.size and data.startswith(known.data):
                return known
        return None

    def remember(self, data: bytes, body_bytes: int, head: Head) -> None:
        """These bytes were exactly one request."""
        found = _repeatable(data, body_bytes, head)
        if found is not None:
            if len(self._known) == _KNOWN_MAX:
                self._known.pop(0)
            self._known.append(found)


def _repeatable(data: bytes, body_bytes: int, head: Head) -> RepeatedHead | None:
    """What to remember of a request that `data` is exactly one of; None when it is not sure."""
    before = data[: len(data) - body_bytes]
    headers = head.headers
    if (
        len(before) > _KNOWN_BYTES_MAX
        or not before.endswith(_END)
        or before.find(_END) != len(before) - len(_END)
        or headers.get(b"content-length", b"") != b"%d" % body_bytes
        or b"transfer-encoding" in headers
        or b"expect" in headers
        or b"upgrade" in headers
    ):
        return None
    return RepeatedHead(before, len(data), head, len(before))


def parsed_head(
    parser: httptools.HttpRequestParser, target: bytes, headers: dict[bytes, bytes]
) -> Head:
    """The head that the parser has just read."""
    return Head(parser.get_method(), target, headers, keep_alive=parser.should_keep_alive())


def _path_of(target: bytes) -> bytes:
    """The path in `http://host/path`, which proxies send."""
    _, found, rest = target.partition(b"://")
    return b"/" + rest.partition(b"/")[2] if found else target
