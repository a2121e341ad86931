"""The tags of many records as one sorted table: which seqs carry a tag, without a loop over them.

For deletes that chose records by their tag. The distinct tags are few; they are kept sorted, so
one tag is a place and all that begin alike are a range of places.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy
import pyarrow
from numpy.typing import NDArray

from headwater.model.match import TagMatcher

Integers = NDArray[numpy.int64]


class Tagged(NamedTuple):
    """Records of one buffer: their seqs, and where their tags lie in it."""

    seqs: Integers
    buffer: memoryview
    starts: Integers
    lengths: Integers


class TagTable:
    def __init__(self, parts: Sequence[Tagged]) -> None:
        arrays = [_texts(part) for part in parts]
        seqs = numpy.concatenate([numpy.empty(0, numpy.int64), *(part.seqs for part in parts)])
        joined = pyarrow.chunked_array(arrays, pyarrow.large_binary()).combine_chunks()
        encoded = joined.dictionary_encode()
        distinct: list[bytes] = encoded.dictionary.to_pylist()
        self._tags = sorted(distinct)
        rank = {tag: rank_of_tag for rank_of_tag, tag in enumerate(self._tags)}
        ranks = numpy.array([rank[tag] for tag in distinct], numpy.int64)
        codes = ranks[encoded.indices.to_numpy()] if len(distinct) else numpy.empty(0, numpy.int64)
        order = numpy.lexsort((seqs, codes))
        self._seqs = seqs[order]
        self._starts = numpy.searchsorted(codes[order], numpy.arange(len(distinct) + 1))

    def find(self, matcher: TagMatcher, end_seq: int) -> Integers:
        """The seqs below `end_seq` whose tag matches, ascending."""
        first = bisect_left(self._tags, matcher.text)
        matching = sum(1 for _ in takewhile(matcher.matches, self._tags[first:]))
        if not matcher.prefix:
            matching = min(matching, 1)
        seqs = self._seqs[self._starts[first] : self._starts[first + matching]]
        return numpy.unique(seqs[seqs < end_seq])


def _texts(part: Tagged) -> Any:
    """The tags as an Arrow array: gathered byte by byte, all at once."""
    ends = numpy.cumsum(part.lengths)
    offsets = numpy.concatenate((numpy.zeros(1, numpy.int64), ends))
    positions = numpy.repeat(part.starts - offsets[:-1], part.lengths)
    positions += numpy.arange(len(positions))
    tag_bytes = numpy.frombuffer(part.buffer, numpy.uint8)[positions]
    return pyarrow.Array.from_buffers(
        pyarrow.large_binary(),
        len(part.lengths),
        [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(tag_bytes)],
    )
