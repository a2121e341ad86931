"""Server-sent events as they come over a connection."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

from headwater.testing.torture.actor import Load


def events(load: Load, response: http.client.HTTPResponse) -> Iterator[tuple[str, str]]:
    """Names and data of events until the load or the stream ends."""
    name = ""
    data: list[str] = []
    while not load.stop.is_set():
        line = response.readline()
        if not line:
            return
        text = line.decode().rstrip("\r\n")
        if not text:
            if name:
                yield name, "\n".join(data)
            name, data = "", []
        elif text.startswith("event: "):
            name = text[7:]
        elif text.startswith("data: "):
            data.append(text[6:])
