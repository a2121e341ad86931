"""Server-sent events come out whole, however the bytes are cut."""

from __future__ import annotations

import pytest

from headwater.client.watch import EventParser, SseEvent
from headwater.wire import sse

STREAM = (
    sse.RETRY
    + sse.event(b"record", b'{"a":\n 1}', b"id1")
    + sse.heartbeat(12)
    + sse.event(b"caught-up", b"{}")
    + b"data: crlf\r\n\r\n"
    + b"event: nothing\n\n"
    + b"id: only\ndata\n\n"
)
EVENTS = [
    SseEvent("record", b'{"a":\n 1}'),
    SseEvent("caught-up", b"{}"),
    SseEvent("message", b"crlf"),
    SseEvent("message", b""),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_events_are_the_same_however_the_bytes_are_cut(size: int) -> None:
    parser = EventParser()
    events = []
    for at in range(0, len(STREAM), size):
        events += parser.feed(STREAM[at : at + size])
    assert events == EVENTS


def test_an_event_that_was_cut_off_never_comes_out() -> None:
    parser = EventParser()
    assert parser.feed(STREAM[:-1])[-1] == EVENTS[-2]
    assert EventParser().feed(b"event: record\ndata: half") == []
