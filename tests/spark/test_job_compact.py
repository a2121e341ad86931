"""Compacting the cold tier frees what is dead, shows readers the same, and survives crashes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import pytest

from headwater.core.errors import DirectoryInUseError, RequestError
from headwater.engine.opening import open_database
from headwater.spark.jobs.compact import CompactOptions, CompactReport, compact
from headwater.testing import DROPS, PREFIXES, RANDOM, TORN, FakeDisk, ManualClock
from headwater.testing.trace import Image
from tests.crash.matrix import slice_of, tried
from tests.rig.comparison import Event, read_events
from tests.rig.life import COLD, DATA, SMALL, open_stepped
from tests.spark.workloads import Engine

Item = TypeVar("Item")
Answer = TypeVar("Answer")
TOPICS = ("one", "two")
PLANS = {
    "prefixes": (PREFIXES, 2),
    "drops": (DROPS, 3),
    "torn": (TORN, 120),
    "random": (RANDOM, 17),
}


def here(function: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    return [function(item) for item in items]


def compacted(disk: FakeDisk, **options: Any) -> CompactReport:
    chosen = CompactOptions(path=str(DATA), cold=str(COLD), **options)
    return compact(disk, ManualClock(), here, chosen)


@cache
def mostly_dead() -> Image:
    """Two topics in the cold tier; since then most of the first one was deleted.

    Its first segment begins below the floor, so that it will be dropped whole: it stays as it is.
    """
    engine = Engine(SMALL)
    for _ in range(4):
        engine.do([("append", "one", 4, "a", 200), ("append", "one", 1, "b", 200)])
        engine.do([("append", "two", 5, "b", 200)])
    engine.do([("checkpoint",), ("reclaim",), ("match", "one", "a"), ("checkpoint",)])
    engine.stop()
    engine.disk.settle()
    return engine.disk.snapshot()


def seen(disk: FakeDisk) -> dict[str, list[Event]]:
    db = open_stepped(disk, SMALL, ManualClock())
    events = {name: list(read_events(db, name)) for name in TOPICS}
    assert not db.engine.core.damage.findings
    db.engine._lock.release()
    return events


@cache
def expected() -> dict[str, list[Event]]:
    return seen(FakeDisk(image=mostly_dead()))


def cold_bytes(disk: FakeDisk) -> int:
    return sum(
        len(content)
        for path, content in disk.files().items()
        if COLD in path.parents and path.suffix == ".data"
    )


def test_dead_bytes_leave_the_cold_tier_and_nothing_else_changes() -> None:
    disk = FakeDisk(image=mostly_dead())
    before = cold_bytes(disk)
    report = compacted(disk)
    assert report.ok
    assert (report.topics, report.segments, report.rewritten, report.moved) == (2, 6, 2, 0)
    assert report.bytes_freed == before - cold_bytes(disk) > 0
    assert seen(disk) == expected()
    assert not [path for path in disk.files() if path.suffix in (".new", ".tmp")]
    again = compacted(disk)
    assert (again.rewritten, again.bytes_freed, again.segments) == (0, 0, 6)


def test_segments_with_enough_life_in_them_are_kept() -> None:
    disk = FakeDisk(image=mostly_dead())
    assert compacted(disk, dead_ratio=0.99).rewritten == 0
    with pytest.raises(RequestError, match="share of dead bytes"):
        compacted(disk, dead_ratio=0.0)


def test_only_the_topics_that_were_named_are_compacted() -> None:
    disk = FakeDisk(image=mostly_dead())
    assert compacted(disk, topics=("two",)).rewritten == 0
    assert compacted(disk, topics=("one",)).rewritten == 2
    with pytest.raises(RequestError, match="no topic 'three'"):
        compacted(disk, topics=("three",))


def test_a_directory_in_use_is_refused_and_left_alone() -> None:
    disk = FakeDisk(image=mostly_dead())
    db = open_stepped(disk, SMALL, ManualClock())
    before = disk.files()
    with pytest.raises(DirectoryInUseError):
        compacted(disk)
    assert disk.files() == before
    db.engine._lock.release()


def test_an_owner_is_kept_out_while_the_job_runs() -> None:
    disk = FakeDisk(image=mostly_dead())
    refused: list[bool] = []

    def meanwhile(function: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
        with pytest.raises(DirectoryInUseError):
            open_stepped(disk, SMALL, ManualClock())
        refused.append(True)
        return here(function, items)

    compact(disk, ManualClock(), meanwhile, CompactOptions(path=str(DATA), cold=str(COLD)))
    assert refused


def test_damage_is_told_and_the_segment_left_as_it_is() -> None:
    disk = FakeDisk(image=mostly_dead())
    files = disk.files()
    data = COLD / "topics" / "00000001" / "seg-0000000000000006.data"
    live = files[data].rindex(b'"n":0')  # the last record of the segment is the live one
    disk.damage(data, live, b"X")
    report = compacted(disk)
    assert not report.ok
    assert report.rewritten == 1
    assert [refusal.segment for refusal in report.refused] == ["00000001/6"]
    assert "seq 10 is damaged" in report.refused[0].reason
    pointer = DATA / "topics" / "00000001" / "seg-0000000000000006.cold"
    assert disk.files()[pointer] == files[pointer]


def test_other_places_are_refused() -> None:
    with pytest.raises(RequestError, match="no wal/ in it"):
        compacted(FakeDisk(["/", DATA, COLD]))
    disk = FakeDisk(image=mostly_dead())
    with pytest.raises(RequestError, match="no directory /warm"):
        compact(disk, ManualClock(), here, CompactOptions(path=str(DATA), cold="/warm"))


@pytest.mark.crash
@pytest.mark.parametrize("plan", PLANS)
def test_a_crash_leaves_the_old_or_the_new_segment_and_never_neither(plan: str) -> None:
    disk = FakeDisk(image=mostly_dead())
    compacted(disk)
    chosen, every = PLANS[plan]
    for state in slice_of(disk.crash_states(plan=chosen), every):
        twin = state.clone()
        assert seen(twin) == expected(), state.label
        report = compacted(state)
        assert report.ok, state.label
        assert report.segments == 6, state.label
        assert cold_bytes(state) == cold_bytes(disk), state.label
        assert seen(state) == expected(), state.label
        tried(f"compact job, {plan}")


def test_a_reader_beside_goes_on_reading() -> None:
    disk = FakeDisk(image=mostly_dead())
    reader = open_database(DATA, read_only=True, settings=SMALL, disk=disk, clock=ManualClock())
    first = reader.diff("one", 0, limit=1)
    compacted(disk)
    rest = reader.diff("one", first.next_from_seq, limit=50)
    seqs = [record.seq for record in (*first.records, *rest.records)]
    assert seqs == [event[0] for event in expected()["one"]]
    reader.close()
