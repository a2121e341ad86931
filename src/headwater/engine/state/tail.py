"""The newest records of a topic, as the frames that went into the log.

Everything not yet in a segment must be here; what is in a segment stays as long as the cache has
room. A chunk is one submission's bytes, so holding it costs nothing per record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import InvariantError


class TailChunk(NamedTuple):
    first_seq: int
    buffer: bytes
    offsets: Sequence[int] | NDArray[numpy.int64]
    """Where the Append frame of each record begins; consecutive seqs."""

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.offsets) - 1


class Tail:
    """Chunks in seq order without gaps. Appended at the end, dropped from the front."""

    __slots__ = ("_chunks", "_dropped", "_end_seq", "_firsts")

    def __init__(self) -> None:
        self._chunks: list[TailChunk] = []
        self._firsts: list[int] = []
        self._dropped = 0
        """Entries at the front that are gone but not yet cut off the lists."""
        self._end_seq = 0
        """The seq behind the newest; only read while there are any."""

    def __len__(self) -> int:
        return len(self._chunks) - self._dropped

    @property
    def first_seq(self) -> int | None:
        """The oldest seq that is here."""
        return self._firsts[self._dropped] if len(self) else None

    @property
    def first_chunk(self) -> TailChunk:
        return self._chunks[self._dropped]

    @property
    def last_seq(self) -> int | None:
        return self._end_seq - 1 if len(self) else None

    def append(self, chunk: TailChunk) -> None:
        first_seq = chunk.first_seq
        chunks = self._chunks
        if first_seq != self._end_seq and len(chunks) > self._dropped:
            raise InvariantError(f"tail ends at seq {self._end_seq - 1}, got seq {first_seq}")
        self._end_seq = first_seq + len(chunk.offsets)
        chunks.append(chunk)
        self._firsts.append(first_seq)

    def chunks(self, first_seq: int, last_seq: int) -> Iterator[TailChunk]:
        """The chunks that hold any seq of this range, in order."""
        index = max(bisect_right(self._firsts, first_seq) - 1, self._dropped)
        while index < len(self._chunks) and self._firsts[index] <= last_seq:
            yield self._chunks[index]
            index += 1

    def drop_first(self) -> TailChunk:
        chunk = self._chunks[self._dropped]
        self._dropped += 1
        if self._dropped * 2 > len(self._chunks):
            del self._chunks[: self._dropped]
            del self._firsts[: self._dropped]
            self._dropped = 0
        return chunk

    def clear(self) -> None:
        self._chunks.clear()
        self._firsts.clear()
        self._dropped = 0


class TailCache:
    """How much of what is already in segments may stay in memory, over all topics.

    First in, first out: a reader near the head finds its records, a reader far behind does not
    push other topics' records out.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: deque[tuple[Tail, TailChunk]] = deque()
        self.bytes = 0

    def keep(self, tail: Tail, chunk: TailChunk) -> None:
        """This chunk is in a segment now; it may be dropped when room is needed."""
        self._kept.append((tail, chunk))
        self.bytes += len(chunk.buffer)
        while self.bytes > self._bytes_max:
            old_tail, old = self._kept.popleft()
            self.bytes -= len(old.buffer)
            while old_tail.first_seq is not None and old_tail.first_seq <= old.first_seq:
                old_tail.drop_first()
