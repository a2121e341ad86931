"""Jobs by who holds them: what is done with all jobs of a claim at once.

Most claims are acked as they were given, so the common ways ask for one holder of all and have no
step of ours for each job. Where they are compiled, they are plain loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import lt
from typing import Final, TypeVar

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
