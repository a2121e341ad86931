"""Deletes by tag that the files may not show yet, applied to rows as they are read."""

from __future__ import annotations

from collections.abc import Iterable

import numpy
import pyarrow
import pyarrow.compute

from headwater.model.match import TagMatcher
from headwater.spark.reading.log_view import Deletion
from headwater.wire.frame_rows import Column, Mask, Rows


def newest(deletions: Iterable[Deletion]) -> list[Deletion]:
    """One for each tag or prefix: the one that reaches furthest."""
    reach: dict[TagMatcher, int] = {}
    for each in deletions:
        reach[each.matcher] = max(each.last_seq, reach.get(each.matcher, 0))
    return [Deletion(last_seq, matcher) for matcher, last_seq in reach.items()]


def deleted_rows(rows: Rows, deletions: Iterable[Deletion]) -> Mask | None:
    """Which rows were deleted by tag; None when none was."""
    if not len(rows):
        return None
    seqs = rows.seqs
    first, last = int(seqs.min()), int(seqs.max())
    meant = [each for each in deletions if each.last_seq >= first]
    if not meant:
        return None
    tags = rows.binary("tag")
    found = _matched(tags, [each.matcher for each in meant if each.last_seq >= last])
    for each in meant:
        if each.last_seq < last:
            found |= _matched(tags, [each.matcher]) & (seqs <= each.last_seq)
    return found if found.any() else None


def _matched(tags: Column, matchers: list[TagMatcher]) -> Mask:
    """A record without a tag never matches, nor does one whose tag is empty."""
    found: Mask = numpy.zeros(len(tags), numpy.bool_)
    exact = [matcher.text for matcher in matchers if not matcher.prefix]
    if exact:
        found |= _as_mask(pyarrow.compute.is_in(tags, pyarrow.array(exact, pyarrow.binary())))
    for matcher in matchers:
        if matcher.prefix:
            found |= _as_mask(pyarrow.compute.starts_with(tags, matcher.text))
    if found.any():
        found &= _as_mask(pyarrow.compute.greater(pyarrow.compute.binary_length(tags), 0))
    return found


def _as_mask(column: Column) -> Mask:
    mask: Mask = pyarrow.compute.fill_null(column, False).to_numpy(zero_copy_only=False)
    return mask.copy()
