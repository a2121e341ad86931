"""Which job is held by whom: job by job, or a run of neighbours as one.

A claim is mostly given neighbours and mostly acked as it was given. Such a run is one entry as long
as all of it has one holder, whatever its length; what leaves it in between cuts it in two. Jobs
that are no neighbours are entries of a dict. For those, too, the common ways ask for one holder of
all and have no step of ours for each job. Where they are compiled, they are plain loops.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import lt
from typing import Final, Generic, TypeVar

from headwater.model.slots import as_run
from headwater.native import compiled

_native: Final = compiled("jobs")

H = TypeVar("H")


def hold(holders: dict[int, H], seqs: Iterable[int], holder: H) -> None:
    """Every one of these jobs is held by this one."""
    if _native is not None:
        _native.hold(holders, seqs, holder)
    else:
        holders.update(dict.fromkeys(seqs, holder))


def one_holder(holders: Mapping[int, H | None], seqs: list[int]) -> H | None:
    """Who holds all of these, when they ascend, which is how most workers name them. None when
    they do not, or are not held, or not by one."""
    if _native is not None:
        holder: H | None = _native.one_holder(holders, seqs)
        return holder
    held = list(map(holders.get, seqs))
    first = held[0] if held else None
    if first is None or held.count(first) != len(seqs):
        return None
    return first if all(map(lt, seqs, seqs[1:])) else None


def move(source: dict[int, H], target: dict[int, H | None], seqs: list[int]) -> None:
    """Move these jobs, all of which are in the source, to the target."""
    if _native is not None:
        _native.move(source, target, seqs)
    else:
        target.update(zip(seqs, map(source.pop, seqs), strict=True))


def let_go_together(holders: dict[int, H], seqs: list[int]) -> H | None:
    """Take out jobs that ascend and give the one who held all of them. None, and nothing is done,
    when they do not, or it was not one."""
    if _native is not None:
        holder: H | None = _native.let_go_together(holders, seqs)
        return holder
    one = one_holder(holders, seqs)
    if one is not None:
        for seq in seqs:
            del holders[seq]
    return one


_RUN_MIN: Final = 4
"""Fewer neighbours are entries of the dict, like any others."""


class Held(Generic[H]):
    """Like a dict from a job to its holder, in which a job is once."""

    __slots__ = ("_alone", "_firsts", "_in_runs", "_runs")

    def __init__(self) -> None:
        self._alone: dict[int, H] = {}
        self._runs: dict[int, tuple[int, H]] = {}
        """By their first job: the job behind the last one, and who holds them."""
        self._firsts: list[int] = []
        """The same, in order: to find a job that is not the first of its run."""
        self._in_runs = 0

    def __len__(self) -> int:
        return len(self._alone) + self._in_runs

    def __iter__(self) -> Iterator[int]:
        yield from self._alone
        for first, (end, _) in self._runs.items():
            yield from range(first, end)

    def items(self) -> Iterator[tuple[int, H]]:
        yield from self._alone.items()
        for first, (end, holder) in self._runs.items():
            for seq in range(first, end):
                yield seq, holder

    def __contains__(self, seq: int) -> bool:
        return seq in self._alone or self._run_with(seq, seq + 1) is not None

    def get(self, seq: int) -> H | None:
        if seq in self._alone:
            return self._alone[seq]
        if not self._runs or not isinstance(seq, int):  # a caller may name what is no job
            return None
        first = self._run_with(seq, seq + 1)
        return None if first is None else self._runs[first][1]

    def __getitem__(self, seq: int) -> H:
        if seq in self._alone:
            return self._alone[seq]
        first = self._run_with(seq, seq + 1)
        if first is None:
            raise KeyError(seq)
        return self._runs[first][1]

    def __setitem__(self, seq: int, holder: H) -> None:
        if self._runs:
            self._cut(seq, seq + 1)
        self._alone[seq] = holder

    def __delitem__(self, seq: int) -> None:
        if seq in self._alone:
            del self._alone[seq]
        elif self._cut(seq, seq + 1) is None:
            raise KeyError(seq)

    def pop(self, seq: int) -> H | None:
        """Take it out and give its holder; None when it was not there, or had none."""
        if seq in self._alone:
            return self._alone.pop(seq)
        return self._cut(seq, seq + 1)

    # -- many at once

    def hold(self, seqs: Sequence[int], holder: H) -> None:
        """Every one of these jobs, none of which is here, is held by this one."""
        if isinstance(seqs, range) and seqs.step == 1 and len(seqs) >= _RUN_MIN:
            self._add(seqs.start, seqs.stop, holder)
        else:
            hold(self._alone, seqs, holder)

    def one_holder(self, seqs: list[int]) -> H | None:
        """Who holds all of these, when they ascend, which is how most workers name them. None when
        they do not, or are not held, or not by one, or finding out would take long."""
        if self._runs:
            run = _run_of(seqs)
            first = None if run is None else self._run_with(run.start, run.stop)
            if first is not None:
                return self._runs[first][1]
        return one_holder(self._alone, seqs) if self._alone else None

    def move(self, target: Held[H | None], seqs: list[int]) -> None:
        """Move these jobs, all of which are here, to another table."""
        run = _run_of(seqs) if self._runs else None
        holder = None if run is None else self._cut(run.start, run.stop)
        if run is not None and holder is not None:
            target.hold(run, holder)
        elif self._runs or target._runs:
            for seq in seqs:
                target[seq] = self[seq]
                del self[seq]
        else:
            move(self._alone, target._alone, seqs)

    def let_go_together(self, seqs: list[int]) -> H | None:
        """Take out jobs that ascend and give the one who held all of them. None, and nothing is
        done, when they do not, or it was not one, or finding out would take long."""
        run = _run_of(seqs) if self._runs else None
        holder = None if run is None else self._cut(run.start, run.stop)
        if holder is None and self._alone:
            return let_go_together(self._alone, seqs)
        return holder

    # -- runs

    def _run_with(self, first: int, end: int) -> int | None:
        """The first job of the run that has all of [first, end)."""
        run = self._runs.get(first)
        if run is None:
            at = bisect_right(self._firsts, first) - 1
            if at < 0:
                return None
            first = self._firsts[at]
            run = self._runs[first]
        return first if end <= run[0] else None

    def _add(self, first: int, end: int, holder: H) -> None:
        if end - first < _RUN_MIN:
            for seq in range(first, end):
                self._alone[seq] = holder
            return
        self._runs[first] = end, holder
        self._in_runs += end - first
        if not self._firsts or first > self._firsts[-1]:
            self._firsts.append(first)
        else:
            insort(self._firsts, first)

    def _cut(self, first: int, end: int) -> H | None:
        """Take [first, end) out of the run that has all of it; gives its holder. None when there is
        none such."""
        run_first = self._run_with(first, end)
        if run_first is None:
            return None
        run_end, holder = self._runs.pop(run_first)
        del self._firsts[bisect_left(self._firsts, run_first)]
        self._in_runs -= run_end - run_first
        if run_first < first:
            self._add(run_first, first, holder)
        if end < run_end:
            self._add(end, run_end, holder)
        return holder


def _run_of(seqs: list[int]) -> range | None:
    """As a range, if they are neighbours. What is no seq at all has no neighbours."""
    if not seqs or type(seqs[0]) is not int or type(seqs[-1]) is not int:
        return None
    try:
        return as_run(seqs)
    except (TypeError, OverflowError):
        return None
