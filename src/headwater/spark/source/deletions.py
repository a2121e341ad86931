"""Deletes by tag and jobs that are done, as far as files may not show them, applied to rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy
import pyarrow
import pyarrow.compute

from headwater.model.match import TagMatcher
from headwater.recovery.history.floors import Deletion
from headwater.wire.frame_rows import Column, Mask, RecordColumns


def newest(deletions: Iterable[Deletion]) -> list[Deletion]:
    """One for each tag or prefix, the one that reaches furthest; and one for all jobs."""
    reach: dict[TagMatcher, int] = {}
    done: list[int] = []
    for each in deletions:
        if each.matcher is None:
            done += each.seqs
        else:
            reach[each.matcher] = max(each.last_seq, reach.get(each.matcher, 0))
    latest = [Deletion(last_seq, matcher) for matcher, last_seq in reach.items()]
    return [*latest, Deletion(max(done), None, tuple(done))] if done else latest


def deleted_rows(rows: RecordColumns, deletions: Iterable[Deletion]) -> Mask | None:
    """Which rows were deleted; None when none was."""
    if not len(rows):
        return None
    seqs = rows.seqs
    first, last = int(seqs.min()), int(seqs.max())
    meant = [each for each in deletions if each.last_seq >= first]
    if not meant:
        return None
    deleted = _deleted_by_tag(rows, [each for each in meant if each.matcher is not None], last)
    for each in meant:
        if each.matcher is None:
            deleted |= numpy.isin(seqs, numpy.array(each.seqs, numpy.int64))
    return deleted if deleted.any() else None


def _deleted_by_tag(rows: RecordColumns, deletions: list[Deletion], last_seq: int) -> Mask:
    if not deletions:
        return numpy.zeros(len(rows), numpy.bool_)
    tags = rows.binary("tag")
    deleted = _matched(tags, [each.matcher for each in deletions if each.last_seq >= last_seq])
    for each in deletions:
        if each.last_seq < last_seq:
            deleted |= _matched(tags, [each.matcher]) & (rows.seqs <= each.last_seq)
    return deleted


def _matched(tags: Column, wanted: Sequence[TagMatcher | None]) -> Mask:
    """A record without a tag never matches, nor does one whose tag is empty."""
    matched: Mask = numpy.zeros(len(tags), numpy.bool_)
    matchers = [matcher for matcher in wanted if matcher is not None]
    exact = [matcher.text for matcher in matchers if not matcher.prefix]
    if exact:
        matched |= _as_mask(pyarrow.compute.is_in(tags, pyarrow.array(exact, pyarrow.binary())))
    for matcher in matchers:
        if matcher.prefix:
            matched |= _as_mask(pyarrow.compute.starts_with(tags, matcher.text))
    if matched.any():
        matched &= _as_mask(pyarrow.compute.greater(pyarrow.compute.binary_length(tags), 0))
    return matched


def _as_mask(column: Column) -> Mask:
    mask: Mask = pyarrow.compute.fill_null(column, False).to_numpy(zero_copy_only=False)
    return mask.copy()
