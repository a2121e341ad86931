"""The names in a directory of a store: each is in one place, and nothing is lost."""

from __future__ import annotations

from pathlib import PurePosixPath

from headwater.recovery.directory import sort_names

PLACE = PurePosixPath("/store")


def number_of(name: str) -> int | None:
    stem, _, suffix = name.partition(".")
    return int(stem) if suffix == "log" else None


def test_each_name_is_the_stores_or_left_over_or_foreign() -> None:
    names = ["7.log", "CURRENT", "CURRENT.tmp", "8.log.tmp", "notes.txt", "12.log"]
    there = sort_names(PLACE, names, number_of, {"CURRENT"}.__contains__)
    assert there.known == {"7.log": 7, "12.log": 12}
    assert there.leftovers == [PLACE / "CURRENT.tmp", PLACE / "8.log.tmp"]
    assert there.foreign == [PLACE / "notes.txt"]


def test_what_belongs_there_is_no_leftover_whatever_it_is_called() -> None:
    there = sort_names(PLACE, ["keep.tmp"], number_of, lambda _: True)
    assert (there.known, there.leftovers, there.foreign) == ({}, [], [])
