"""The names in one directory of a store: its own, what work left there, and what is foreign."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Generic, TypeVar

from headwater.disk.whole_files import TEMPORARY_SUFFIX

T = TypeVar("T")


@dataclass(slots=True)
class StoreNames(Generic[T]):
    known: dict[str, T] = field(default_factory=dict)
    """Names of the store's form, and what they say."""
    leftovers: list[PurePath] = field(default_factory=list)
    """Made by work that was interrupted, or goes on."""
    foreign: list[PurePath] = field(default_factory=list)


def sort_names(
    directory: PurePath,
    names: Iterable[str],
    parse: Callable[[str], T | None],
    own: Callable[[str], bool],
) -> StoreNames[T]:
    """`parse` is None for a name that is not of the store's form; `own` is true of other names that
    belong there."""
    result = StoreNames[T]()
    for name in names:
        parsed = parse(name)
        if parsed is not None:
            result.known[name] = parsed
        elif own(name):
            continue
        elif name.endswith(TEMPORARY_SUFFIX):
            result.leftovers.append(directory / name)
        else:
            result.foreign.append(directory / name)
    return result
