"""Jobs that were never claimed: a scan of the topic's own index finds them; they cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.core.arrays import numpy
from headwater.model.index import SeqIndex
from headwater.model.slots import DEAD

_FEW: Final = 8
"""Up to here one check each is quicker than numpy."""


def next_live(jobs: SeqIndex, from_seq: int, wanted: int) -> tuple[Sequence[int], int]:
    """At most `wanted` live seqs from here on, and how far the scan went.

    It scans one stretch, so there may be more live seqs; the next call goes on. Where all of it is
    alive, the result is a range: nothing is made for each of them.
    """
    first = jobs.first_live(from_seq)
    if first >= jobs.next_seq:
        return [], jobs.next_seq
    if wanted <= _FEW:
        seqs = [first]
        while len(seqs) < wanted and (seq := jobs.first_live(seqs[-1] + 1)) < jobs.next_seq:
            seqs.append(seq)
        return seqs, seqs[-1] + 1
    end = min(first + wanted, jobs.next_seq)
    if jobs.all_live(first, end):
        return range(first, end), end
    live = numpy.flatnonzero(jobs.flags(first, end) & DEAD == 0)
    return (live + first).tolist(), end


def fitting(jobs: SeqIndex, seqs: Sequence[int], bytes_max: int) -> int:
    """How many of these, from the first, have no more payload than that together."""
    if jobs.live_bytes <= bytes_max:
        return len(seqs)  # all jobs together are no more than that
    first, end = seqs[0], seqs[-1] + 1
    if end - first == len(seqs) and int(jobs.peek(first, end)["len"].sum()) <= bytes_max:
        return len(seqs)  # mostly they are neighbours, and small
    for count, seq in enumerate(seqs):
        bytes_max -= jobs.payload_at(seq)
        if bytes_max < 0:
            return count
    return len(seqs)
