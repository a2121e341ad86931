"""Copies that are in memory only, written to the log because something else about their topic is.

See `headwater.engine.state.topic` for why. What is dead leaves no frame: slots without a record
are filled when the log is read back; ROUTER_PLACES names them where no other frame does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from headwater.core.arrays import numpy
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.format.router_frames import (
    RouterMark,
    encode_router_marks,
    encode_router_places,
)
from headwater.model.slots import DEAD, LOST


class CopyFlush(NamedTuple):
    """Frames that go in front of others, and what they mean once those are durable."""

    topic: Topic
    body: bytes
    frame_count: int
    upto_seq: int
    marks: list[RouterMark]

    def confirm(self) -> None:
        inbound = self.topic.inbound
        if inbound is None:
            return
        inbound.flushed(self.upto_seq)
        inbound.marked(self.marks)


def flush_copies(core: EngineCore, topic: Topic) -> CopyFlush | None:
    """The frames that flush everything copied so far; None when all is flushed."""
    inbound = topic.inbound
    if inbound is None or inbound.unflushed_from is None:
        return None
    first, last = inbound.unflushed_from, topic.log.visible_seq
    marks = [router.next_mark() for router in inbound.routers if router.made]
    # The mark stands first: it keeps what follows apart from the records of the group before.
    frames = [encode_router_marks(topic.topic_id, marks, core.clock.wall_ms())]
    count = 1
    for body, frame_count in _slot_frames(topic, first, last):
        frames.append(body)
        count += frame_count
    return CopyFlush(topic, b"".join(frames), count, last, marks)


def _slot_frames(topic: Topic, first_seq: int, last_seq: int) -> Iterator[tuple[bytes, int]]:
    """What these slots hold: bytes for the log, with how many frames they have."""
    index = topic.log.index
    start = max(first_seq, index.base_seq)
    if start > last_seq:
        yield encode_router_places(topic.topic_id, last_seq, topic.last_ts, lost=False), 1
        return
    flags = index.flags(start, last_seq + 1)
    kinds = flags & (DEAD | LOST)
    borders = (numpy.flatnonzero(numpy.diff(kinds)) + 1).tolist()
    for low, high in itertools.pairwise([0, *borders, len(kinds)]):
        if kinds[low] & DEAD:
            lost = bool(kinds[low] & LOST)
            end = start + high - 1
            yield encode_router_places(topic.topic_id, end, topic.last_ts, lost=lost), 1
        else:
            yield from _frames(topic, start + low, start + high - 1)


def _frames(topic: Topic, first_seq: int, last_seq: int) -> Iterator[tuple[bytes, int]]:
    for chunk in topic.tail.chunks(first_seq, last_seq):
        low = max(first_seq - chunk.first_seq, 0)
        high = min(last_seq + 1 - chunk.first_seq, len(chunk.offsets))
        end = int(chunk.offsets[high]) if high < len(chunk.offsets) else len(chunk.buffer)
        yield chunk.buffer[int(chunk.offsets[low]) : end], high - low
