"""What a request says before its body, and what follows from that alone.

Clients send the same request line and headers again and again; only the body changes. The same
bytes mean the same, so they are read once, and route, key and media type are looked up once.
Anything that is not wholly the same, or comes in pieces, goes through the parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import httptools

if TYPE_CHECKING:
    from headwater.server.access.keys import ApiKey
    from headwater.server.access.quotas import Usage
    from headwater.server.http.route_table import Route

_END: Final = b"\r\n\r\n"
_KNOWN_MAX: Final = 8_192
"""Each topic, and bodies of every length, have heads of their own."""
_KNOWN_BYTES_MAX: Final = 4_096
"""Longer heads are not worth keeping."""


class Head:
    """Read by many exchanges; the app fills in the rest when it first lets one of them in."""

    __slots__ = (
        "body_bytes",
        "channel_number",
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
        """Its parameters, once a handler asked for one; they never change."""
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
        """None until it was computed."""
        self.route: Route | None = None
        """None until a request with this head was let in."""
        self.parameters: tuple[str, ...] = ()
        self.key: ApiKey | None = None
        self.usage: Usage | None = None
        self.body_bytes = 0
        """What follows it, for one that is known."""
        self.channel_number = 0
        """In a gateway: under which the sequencer keeps it; 0 if it does not."""


class KnownHeads:
    """Heads that came lately and are likely to come again, on whatever connection.

    What follows from a head follows from its bytes alone, so who has sent it does not matter.
    """

    def __init__(self, known_max: int = _KNOWN_MAX) -> None:
        self._known_max = known_max
        self._known: dict[bytes, Head] = {}
        self._older: dict[bytes, Head] = {}
        """Those before the last `known_max`: what comes again is kept, the rest goes."""

    def __len__(self) -> int:
        return len(self._known) + len(self._older)

    def find(self, data: bytes) -> Head | None:
        """The head of these bytes, when they are exactly one request with a head that is known."""
        head_bytes = data.find(_END) + len(_END)
        head = self._known.get(data[:head_bytes])
        if head is None:
            head = self._older.pop(data[:head_bytes], None) if self._older else None
            if head is None:
                return None
            self._keep(data[:head_bytes], head)
        return head if head_bytes + head.body_bytes == len(data) else None

    def remember(self, data: bytes, body_bytes: int, head: Head) -> None:
        """These bytes were exactly one request."""
        head_bytes = len(data) - body_bytes
        if _is_repeatable(data, head_bytes, head):
            head.body_bytes = body_bytes
            self._keep(data[:head_bytes], head)

    def _keep(self, head_bytes: bytes, head: Head) -> None:
        if len(self._known) >= self._known_max:
            self._known, self._older = {}, self._known
        self._known[head_bytes] = head


def _is_repeatable(data: bytes, head_bytes: int, head: Head) -> bool:
    """Whether a request with this head says by its length alone where it ends."""
    headers = head.headers
    return not (
        head_bytes > _KNOWN_BYTES_MAX
        or data.find(_END) + len(_END) != head_bytes
        or headers.get(b"content-length", b"") != b"%d" % (len(data) - head_bytes)
        or b"transfer-encoding" in headers
        or b"expect" in headers
        or b"upgrade" in headers
    )


def parsed_head(
    parser: httptools.HttpRequestParser, target: bytes, headers: dict[bytes, bytes]
) -> Head:
    """The head that the parser has just read."""
    return Head(parser.get_method(), target, headers, keep_alive=parser.should_keep_alive())


def _path_of(target: bytes) -> bytes:
    """The path in `http://host/path`, which proxies send."""
    _, separator, rest = target.partition(b"://")
    return b"/" + rest.partition(b"/")[2] if separator else target
