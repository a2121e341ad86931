"""Server-sent events from bytes, however they are cut. No I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SseEvent:
    name: str
    data: bytes


class EventParser:
    """Feed it what arrives; it gives whole events. Comments and fields we do not use are left out.

    Lines end with LF or CRLF. An event that the connection cut off never comes out.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._scanned = 0
        self._name = "message"
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[SseEvent]:
        rest = self._rest
        rest += chunk
        events: list[SseEvent] = []
        start = 0
        while True:
            end = rest.find(b"\n", max(self._scanned, start))
            if end < 0:
                break
            line = bytes(rest[start:end])
            start = end + 1
            event = self._take(line[:-1] if line.endswith(b"\r") else line)
            if event is not None:
                events.append(event)
        del rest[:start]
        self._scanned = len(rest)
        return events

    def _take(self, line: bytes) -> SseEvent | None:
        if not line:
            event = SseEvent(self._name, b"\n".join(self._data)) if self._data else None
            self._name, self._data = "message", []
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None
