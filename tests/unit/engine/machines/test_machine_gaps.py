"""What cannot be read of the machines' log is told as a gap, to whoever follows, wherever it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import pytest

from headwater.api.machine_requests import WatchFilter
from headwater.core.errors import OverloadedError
from headwater.engine.machines.log_reader import GapReason, LogGap, WalEntry
from headwater.engine.machines.transition_feeder import LOG_BEGIN
from headwater.engine.machines.watchers import TransitionEvent
from headwater.format.machines.names import (
    global_offset,
    segment_name,
    segment_of,
    within_segment,
)
from headwater.testing import FakeDisk
from tests.rig.transition_feeder import APART, TOPIC, Both, new_disk

LOG = APART / "wal"
SEGMENT_BYTES = 1_024
EVERYTHING = WatchFilter()


def path_of(offset: int) -> PurePosixPath:
    return LOG / segment_name(segment_of(offset))


def with_a_long_log(feed: bool = False) -> tuple[FakeDisk, Both]:
    disk = new_disk()
    both = Both(disk, segment_bytes=SEGMENT_BYTES, feed=feed)
    both.begin()
    for _ in range(8):
        both.turn()
    return disk, both


def entries_of(both: Both) -> list[WalEntry]:
    return both.store.read_wal(0, 1_000).read().entries


def flip(disk: FakeDisk, entry: WalEntry) -> None:
    disk.damage(path_of(entry.offset), within_segment(entry.offset) + 30, b"\xff")


def zero(disk: FakeDisk, entry: WalEntry) -> None:
    """As if nobody had written it."""
    size = len(entry.payload) + 24
    disk.damage(path_of(entry.offset), within_segment(entry.offset), bytes(size))


def cut(disk: FakeDisk, entry: WalEntry) -> None:
    disk.truncate_file(path_of(entry.offset), within_segment(entry.offset))


def remove(disk: FakeDisk, entry: WalEntry) -> None:
    disk.unlink(path_of(entry.offset))


HOLES: dict[str, Callable[[FakeDisk, WalEntry], None]] = {
    "flipped": flip,
    "zeroed": zero,
    "cut": cut,
    "removed": remove,
}


def read_all(both: Both, start: int, limit: int = 3) -> list[TransitionEvent | LogGap]:
    """As a watcher does, part by part."""
    plan = replace(both.store.catch_up(EVERYTHING, start), limit=limit)
    told: list[TransitionEvent | LogGap] = []
    while True:
        part = plan.read()
        told += part.in_order()
        if part.following is None:
            return told
        plan = part.following


def assert_nothing_is_silent(
    told: list[TransitionEvent | LogGap], happened: list[int], start: int, what: str
) -> None:
    """Each transition from the start on was told once, or lies in a gap; and in order."""
    events = [each.wal_offset for each in told if isinstance(each, TransitionEvent)]
    gaps = [each for each in told if isinstance(each, LogGap)]
    covered = [at for at in happened if any(gap.offset <= at < gap.resume for gap in gaps)]
    assert not set(events) & set(covered), what
    assert sorted(events + covered) == [at for at in happened if at >= start], what
    places = [each[0] for each in told]
    assert places == sorted(set(places)), what
    for before, after in pairwise(gaps):
        assert before.resume <= after.offset, what


@pytest.mark.parametrize("kind", HOLES)
@pytest.mark.parametrize("limit", [3, 1_000])
def test_a_hole_anywhere_is_a_gap_wherever_reading_begins(kind: str, limit: int) -> None:
    _, whole = with_a_long_log()
    happened, count = whole.happened(), len(entries_of(whole))
    for number in range(2, count):  # the first two make the machine and the instance
        disk, both = with_a_long_log()
        entry = entries_of(both)[number]
        HOLES[kind](disk, entry)
        starts = {0, LOG_BEGIN, entry.offset, entry.offset + 1, happened[1] + 1, happened[-1] + 1}
        starts |= {happened[len(happened) // 2] + 7}  # within an entry
        for start in starts:
            told = read_all(both, start, limit)
            assert_nothing_is_silent(told, happened, start, f"{kind} at {number} from {start}")


def test_a_log_without_holes_has_no_gaps_wherever_reading_begins() -> None:
    _, both = with_a_long_log()
    happened = both.happened()
    end = both.store.committed_offset
    for segment in range(1, segment_of(end) + 1):
        for within in range(SEGMENT_BYTES):
            start = global_offset(segment, within)
            told = read_all(both, start, 1_000)
            assert [each[0] for each in told] == [at for at in happened if at >= start]


def gaps_in(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in told if each.get("type") == "gap"]


@pytest.mark.parametrize("kind", HOLES)
def test_the_topic_has_a_gap_for_what_the_feeder_cannot_read(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, whole = with_a_long_log()
    happened = whole.happened()
    for number in range(2, len(entries_of(whole)), 3):
        disk, both = with_a_long_log()
        entry = entries_of(both)[number]
        HOLES[kind](disk, entry)
        both.feed(disk)
        caplog.clear()
        both.feeder.round()
        told = both.told()
        offsets = [each["wal_offset"] for each in told if "wal_offset" in each]
        (gap,) = gaps_in(told)
        inside = range(gap["first_offset"], gap["last_offset"] + 1)
        assert entry.offset in inside
        assert sorted(offsets + [at for at in happened if at in inside]) == happened
        assert gap["reason"] == "damaged"
        assert gap["first_offset_text"] == str(gap["first_offset"])
        assert both.feeder.gaps == 1
        (line,) = [each for each in caplog.messages if "gap" in each]
        assert str(gap["first_offset"]) in line
        both.feeder.round()
        assert both.told() == told


def test_a_gap_at_the_end_of_the_topic_tells_where_to_go_on() -> None:
    """Exactly once also then: the gap is not told again, and nothing behind it is left out."""
    disk, both = with_a_long_log(feed=True)
    both.feeder.round()
    both.turn()
    last = entries_of(both)[-1]
    both.turn()
    flip(disk, last)
    both.database.create(TOPIC, cap_records=len(both.told()) + 4, discard="reject")
    end = both.store.committed_offset
    plan = replace(both.store.catch_up(EVERYTHING, both.feeder.position), limit=3)
    part = plan.read()
    both.feeder._append(map(both.feeder._of_read, part.in_order()))
    assert part.following is not None
    part = replace(part.following, limit=0).read()
    both.feeder._append(map(both.feeder._of_read, part.in_order()))
    assert gaps_in(both.told()[-1:]), "the gap is the last record, as after a kill"
    both.database.create(TOPIC, cap_records=0)
    again = Both(disk.after_kill(), segment_bytes=SEGMENT_BYTES)
    again.feeder.round()
    told = again.told()
    assert len(gaps_in(told)) == 1
    offsets = [each["wal_offset"] for each in told if "wal_offset" in each]
    assert offsets == sorted(set(offsets))
    assert len(offsets) == 39, "all of forty but the damaged one"
    assert again.feeder.position >= end


def test_a_gap_that_somebody_else_made_up_leaves_nothing_out() -> None:
    disk, both = with_a_long_log(feed=True)
    both.feeder.round()
    both.turn()
    happened = both.happened()
    for last in (happened[-1], both.store.committed_offset - 1, 2**60):
        made_up = {"type": "gap", "first_offset": happened[-3], "last_offset": last}
        both.database.append(TOPIC, [{"data": made_up, "node": "machines"}])
    again = Both(disk.after_kill(), segment_bytes=SEGMENT_BYTES)
    again.feeder.round()
    offsets = [each["wal_offset"] for each in again.told() if "wal_offset" in each]
    assert offsets == happened


def test_log_that_was_deleted_while_no_topic_was_fed_is_a_gap(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, both = with_a_long_log(feed=True)
    both.feeder.round()
    known = both.told()
    fed = both.feeder.position
    both.close()
    with caplog.at_level(logging.WARNING):
        off = Both(disk, topic=None, segment_bytes=SEGMENT_BYTES, feed=False)
    assert any("no topic any more" in each for each in caplog.messages)
    for _ in range(4):
        off.turn()
    gone = off.happened()[32:]
    off.store.compact()
    off.store.compact()  # the log from the snapshot before on stays
    assert off.store.wal_stats().oldest_segment > segment_of(fed)
    off.store.close()
    off.database.close()
    again = Both(disk, segment_bytes=SEGMENT_BYTES)
    again.turn()
    again.feeder.round()
    told = again.told()[len(known) :]
    begin = global_offset(again.store.wal_stats().oldest_segment, 0)
    assert told[0]["type"] == "gap"
    assert (told[0]["first_offset"], told[0]["last_offset"]) == (fed, begin - 1)
    assert told[0]["reason"] == "compacted"
    offsets = [each["wal_offset"] for each in told[1:]]
    assert [at for at in gone if at >= begin] == offsets[:-4]
    assert len(offsets) - 4 < len(gone), "some are gone"


def test_the_end_of_the_log_zeroed_while_it_is_open_is_a_gap() -> None:
    disk, both = with_a_long_log()
    last = entries_of(both)[-1]
    zero(disk, last)
    told = read_all(both, LOG_BEGIN, 1_000)
    assert told[-1] == LogGap(last.offset, both.store.committed_offset, GapReason.DAMAGED)
    page = both.store.read_wal(0, 1_000).read()
    assert [each.offset for each in page.damaged] == [last.offset]


def test_history_calls_a_segment_missing_in_the_middle_damage() -> None:
    disk, both = with_a_long_log()
    middle = entries_of(both)[len(entries_of(both)) // 2]
    remove(disk, middle)
    history = both.store.history("a").read()
    assert history.damaged_at is not None
    assert segment_of(history.damaged_at) == segment_of(middle.offset)
    assert history.gone_before is None
    assert not history.complete


def test_a_round_that_fails_with_a_gap_in_it_tells_the_gap_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk, both = with_a_long_log()
    flip(disk, entries_of(both)[10])
    both.feed(disk)

    def full(*_: object, **__: object) -> None:
        raise OverloadedError("no room", retry_after_ms=1)

    with monkeypatch.context() as patch:
        patch.setattr(both.feeder, "_write", full)
        with pytest.raises(OverloadedError):
            both.feeder.round()
    both.feeder.round()
    assert len(gaps_in(both.told())) == both.feeder.gaps == 1
    assert len([each for each in caplog.messages if "gap" in each]) == 1
