"""An index from tags to the records that carry them, so that a search need not read the log.

Seqs come in ascending order, so the index is a row of chunks, each about a run of seqs with its
own map from tag to seqs. A chunk whose last seq is gone is dropped whole; nothing ever walks over
all tags, neither to evict nor to sort. A tag that occurs once costs one number, more occurrences
four bytes each.

Entries may be out of date: a record can be deleted or evicted without its tag being known here.
A result is therefore a candidate until the seq index agrees.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from headwater.core.arrays import numpy
from headwater.core.errors import InvariantError
from headwater.model.index import Seqs
from headwater.model.match import TagMatcher

CHUNK_ENTRIES: Final = 16_384
_SPAN_MAX: Final = 2**32 - 1


class _Chunk:
    """Tags of the records from `first_seq` on; seqs are kept as distances from it."""

    __slots__ = ("added", "first_seq", "keys", "last_seq", "offsets")

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.last_seq = first_seq
        self.added = 0
        self.offsets: dict[bytes, int | array[int]] = {}
        self.keys: list[bytes] | None = None
        """All tags in order, once there was a search by prefix."""

    def add(self, tag: bytes, seq: int) -> None:
        offset = seq - self.first_seq
        known = self.offsets.get(tag)
        if known is None:
            self.offsets[tag] = offset
            self.keys = None
        elif isinstance(known, int):
            self.offsets[tag] = array("I", (known, offset))
        else:
            known.append(offset)
        self.last_seq = seq
        self.added += 1

    def tags_for(self, matcher: TagMatcher) -> list[bytes]:
        text = matcher.text
        if not matcher.prefix:
            return [text] if text in self.offsets else []
        if self.keys is None:
            self.keys = sorted(self.offsets)
        low = bisect_left(self.keys, text)
        after = _successor(text)
        high = len(self.keys) if after is None else bisect_left(self.keys, after, low)
        return self.keys[low:high]

    def offsets_of(self, tag: bytes, low: int, high: int) -> Iterable[int]:
        """Distances of the tag's seqs in [low, high)."""
        known = self.offsets[tag]
        if isinstance(known, int):
            return (known,) if low <= known < high else ()
        return known[bisect_left(known, low) : bisect_left(known, high)]

    def has(self, tag: bytes, offset: int) -> bool:
        return any(True for _ in self.offsets_of(tag, offset, offset + 1))

    def cut(self, tag: bytes, low: int, high: int) -> None:
        """Forget the tag's seqs in [low, high), and the tag with its last seq."""
        known = self.offsets[tag]
        if not isinstance(known, int):
            del known[bisect_left(known, low) : bisect_left(known, high)]
            if len(known) > 1:
                return
            if len(known) == 1:
                self.offsets[tag] = known[0]
                return
        elif not low <= known < high:
            return
        del self.offsets[tag]
        self.keys = None


class TagIndex:
    __slots__ = ("_chunks", "floor")

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()
        self.floor = 0
        """Seqs below are gone."""

    def __len__(self) -> int:
        """How many tags have at least one seq, counted once for each chunk they are in."""
        return sum(len(chunk.offsets) for chunk in self._chunks)

    def add(self, tag: bytes, seq: int) -> None:
        """Note the tag of a new record; seqs must ascend."""
        chunks = self._chunks
        if chunks:
            chunk = chunks[-1]
            if chunk.added < CHUNK_ENTRIES and seq - chunk.first_seq <= _SPAN_MAX:
                chunk.add(tag, seq)
                return
        chunk = _Chunk(seq)
        chunks.append(chunk)
        chunk.add(tag, seq)

    def add_older(self, records: Iterable[tuple[bytes, int]]) -> None:
        """Note tags of records older than all that are known, in ascending order of seq."""
        older = TagIndex()
        for tag, seq in records:
            older.add(tag, seq)
        if older._chunks and self._chunks and older._chunks[-1].last_seq >= self._oldest():
            raise InvariantError("tags loaded late must be older than those known")
        self._chunks.extendleft(reversed(older._chunks))

    def _oldest(self) -> int:
        return self._chunks[0].first_seq

    def exact(self, tag: bytes, below: int | None = None) -> Seqs:
        return self.find(TagMatcher(tag, prefix=False), below)

    def prefix(self, text: bytes, below: int | None = None) -> Seqs:
        return self.find(TagMatcher(text, prefix=True), below)

    def find(self, matcher: TagMatcher, below: int | None = None) -> Seqs:
        """Candidates in ascending order, below a seq when one is given."""
        parts: list[Seqs] = []
        for chunk, low, high in self._ranges(below):
            offsets: list[int] = []
            for tag in chunk.tags_for(matcher):
                offsets += chunk.offsets_of(tag, low, high)
            if offsets:
                chosen = numpy.array(offsets, numpy.int64)
                if matcher.prefix:
                    chosen.sort()
                parts.append(chosen + chunk.first_seq)
        return numpy.concatenate(parts) if parts else numpy.empty(0, numpy.int64)

    def tag_of(self, seq: int) -> bytes | None:
        """The tag of one record, by a scan of its chunk: for a record that cannot be read."""
        for chunk in self._chunks:
            if chunk.first_seq <= seq <= chunk.last_seq:
                offset = seq - chunk.first_seq
                return next((tag for tag in chunk.offsets if chunk.has(tag, offset)), None)
        return None

    def forget(self, matcher: TagMatcher, below: int | None = None) -> None:
        """Remove what `find` would give."""
        for chunk, low, high in self._ranges(below):
            for tag in chunk.tags_for(matcher):
                chunk.cut(tag, low, high)
        self._drop_empty()

    def remove(self, tag: bytes, seq: int) -> None:
        """Forget one record, whose tag the caller knows."""
        for chunk in self._chunks:
            if chunk.first_seq <= seq <= chunk.last_seq and tag in chunk.offsets:
                offset = seq - chunk.first_seq
                chunk.cut(tag, offset, offset + 1)
                break
        self._drop_empty()

    def _ranges(self, below: int | None) -> Iterator[tuple[_Chunk, int, int]]:
        """Each chunk that may have candidates, with the distances that count."""
        for chunk in tuple(self._chunks):
            first = chunk.first_seq
            end = chunk.last_seq + 1 if below is None else min(below, chunk.last_seq + 1)
            if end > first:
                yield chunk, max(self.floor - first, 0), end - first

    def prune_below(self, seq: int) -> None:
        """Every record below `seq` is gone."""
        self.floor = seq
        chunks = self._chunks
        while chunks and chunks[0].last_seq < seq:
            chunks.popleft()

    def _drop_empty(self) -> None:
        if not all(chunk.offsets for chunk in self._chunks):
            self._chunks = deque(chunk for chunk in self._chunks if chunk.offsets)


def _successor(text: bytes) -> bytes | None:
    """The first string after all that begin with this one; None when there is no such string."""
    stripped = text.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
