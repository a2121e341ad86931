"""Transitions in their topic: all of them, once, in order, whatever crashes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater.config.machines import FsyncKind
from headwater.core.errors import OverloadedError
from headwater.engine.machines import transition_feeder
from headwater.engine.machines.transition_feeder import TransitionFeeder
from headwater.testing import PREFIXES, ManualClock
from tests.crash.matrix import slice_of, tried
from tests.rig.life import open_stepped
from tests.rig.machines import SMALL as SMALL_MACHINES
from tests.rig.transition_feeder import APART, ENGINE, TOPIC, Both, new_disk


def both_in_one_segment() -> Both:
    """What is in memory is told from there, as long as the log goes on in one file."""
    return Both(new_disk(), segment_bytes=65_536)


def test_each_transition_is_a_record_with_all_there_is_to_tell() -> None:
    both = Both(new_disk())
    both.begin()
    both.turn()
    both.feeder.round()
    first = both.told()[0]
    offset = both.happened()[0]
    assert first == {
        "instance_id": "a",
        "machine": "order",
        "version": 1,
        "event": "PAY",
        "from_state": "new",
        "to_state": "paid",
        "at": ManualClock().wall_ms(),
        "event_id": None,
        "wal_offset": offset,
        "wal_offset_text": str(offset),
        "payload": {"by": "PAY"},
    }
    (record, *_) = both.database.diff(TOPIC, 0, limit=1).records
    assert (record.tag, record.node) == ("order", "machines")
    both.feeder.round()
    assert len(both.told()) == 4


def test_feeding_goes_on_where_it_was_after_restarts() -> None:
    disk = new_disk()
    both = Both(disk)
    both.begin()
    for _ in range(3):
        both.turn()
        both.feeder.round()
        both.turn()  # not fed before the stop
        both.close()
        both = Both(disk)
    both.feeder.round()
    assert [each["wal_offset"] for each in both.told()] == both.happened()


@pytest.mark.parametrize("node", ["another", "machines"])
@pytest.mark.parametrize(
    "data", [{"wal_offset": 1}, {"wal_offset": 2**60}, {"wal_offset": "x"}, [1], "text", None, {}]
)
def test_records_of_others_in_the_topic_are_looked_past(node: str, data: Any) -> None:
    disk = new_disk()
    both = Both(disk)
    both.begin()
    both.turn()
    both.feeder.round()
    both.database.append(TOPIC, [{"data": data, "node": node} for _ in range(300)])
    both.turn()
    both.close()
    disk.unlink(APART / "FED")
    both = Both(disk)
    both.feeder.round()
    told: list[Any] = list(both.told())
    ours = [each["wal_offset"] for each in told if isinstance(each, dict) and len(each) > 1]
    assert ours == both.happened()


def test_a_record_that_tells_of_what_has_not_happened_stops_nothing() -> None:
    disk = new_disk()
    both = Both(disk)
    both.begin()
    both.turn()
    both.feeder.round()
    last = both.told()[-1]
    ahead = last["wal_offset"] + 2**40 + 1
    forged = last | {"wal_offset": ahead, "wal_offset_text": str(ahead)}
    both.database.append(TOPIC, [{"data": forged, "node": "machines"}])
    both.turn()
    both.close()
    disk.unlink(APART / "FED")
    both = Both(disk)
    both.feeder.round()
    told = [each["wal_offset"] for each in both.told()]
    told.remove(ahead)
    assert told == both.happened()


def test_the_topic_never_has_what_a_power_loss_takes_from_the_log() -> None:
    disk = new_disk()
    both = Both(disk, FsyncKind.NEVER)
    both.begin()
    both.turn()
    both.feeder.round()
    again = Both(disk.after_power_loss(), FsyncKind.NEVER)
    assert len(again.told()) == 4
    assert [each["wal_offset"] for each in again.told()] == again.happened()


def test_memory_tells_the_topic_what_the_log_would_and_nothing_is_read() -> None:
    live, later = both_in_one_segment(), both_in_one_segment()
    for both in (live, later):
        both.begin()
    live.feeder.round()
    reads = live.store.wal_stats().reads
    for _ in range(3):
        live.turn()
        later.turn()
        live.feeder.round()
    assert live.store.wal_stats().reads == reads, "all of it was in memory"
    later.feeder.round()
    assert later.store.wal_stats().reads > 0
    assert live.told() == later.told()
    assert len(live.told()) == 12


def test_more_than_is_remembered_is_read_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    both = both_in_one_segment()
    both.begin()
    both.feeder.round()
    monkeypatch.setattr(transition_feeder, "FRESH_BYTES_MAX", 300)
    both.turn()
    reads = both.store.wal_stats().reads
    both.feeder.round()
    assert both.store.wal_stats().reads > reads
    monkeypatch.undo()
    both.turn()
    both.feeder.round()
    assert [each["wal_offset"] for each in both.told()] == both.happened()


def test_a_round_that_failed_is_made_up_for_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    both = both_in_one_segment()
    both.begin()
    both.feeder.round()
    both.turn()

    def full(*_: object, **__: object) -> None:
        raise OverloadedError("no room", retry_after_ms=1)

    monkeypatch.setattr(both.database.engine, "append", full)
    with pytest.raises(OverloadedError):
        both.feeder.round()
    monkeypatch.undo()
    both.turn()
    both.feeder.round()
    assert [each["wal_offset"] for each in both.told()] == both.happened()


def test_an_emptied_topic_is_not_filled_again() -> None:
    disk = new_disk()
    both = Both(disk)
    both.begin()
    both.turn()
    both.feeder.round()
    both.close()
    both = Both(disk)
    both.database.delete(TOPIC, before_seq=5)
    both.turn()
    both.feeder.round()
    assert [each["wal_offset"] for each in both.told()] == both.happened()[4:]


def test_a_topic_that_was_emptied_before_a_kill_is_not_filled_again() -> None:
    disk, clock = new_disk(), ManualClock()
    both = Both(disk, clock=clock)
    both.begin()
    both.turn()
    both.feeder.round()
    clock.advance(1_000_000)
    both.feeder.round()  # nothing is new, and how far it was is on disk now
    both.database.delete(TOPIC, before_seq=5)
    again = Both(disk.after_kill(), clock=clock)
    again.turn()
    again.feeder.round()
    assert [each["wal_offset"] for each in again.told()] == again.happened()[4:]


def test_compaction_keeps_what_is_not_in_the_topic_yet() -> None:
    disk = new_disk()
    both = Both(disk)
    both.begin()
    both.turn()
    both.turn()
    both.feeder.round()
    both.turn()
    both.turn()
    both.store.compact()
    before = both.store.wal_stats().oldest_segment
    both.feeder.round()
    assert len(both.told()) == 16
    both.store.compact()
    assert both.store.wal_stats().oldest_segment > before


def test_a_payload_too_large_for_a_record_is_left_out_and_said_so() -> None:
    both = Both(new_disk())
    both.begin()
    big = {"text": "x" * 1_000_000}
    both.store.do(lambda: both.store.apply_event("a", "PAY", big))
    both.feeder.round()
    (told,) = both.told()
    assert told["payload"] is None
    assert told["payload_omitted"] is True


def test_the_engine_feeds_by_itself_once_machines_are_opened() -> None:
    disk = new_disk()
    database = open_stepped(disk, replace(ENGINE, machines=SMALL_MACHINES), ManualClock())
    room = database.engine.machines
    assert room.store is None
    room.open()
    assert isinstance(room.feeder, TransitionFeeder)
    database.close()
    off = replace(ENGINE, machines=replace(SMALL_MACHINES, transitions_topic=None))
    again = open_stepped(disk, off, ManualClock())
    assert again.engine.machines.store is not None
    assert again.engine.machines.feeder is None
    again.close()


@pytest.mark.crash
@pytest.mark.parametrize("kind", [FsyncKind.EVERY_WRITE, FsyncKind.NEVER])
def test_every_transition_is_in_the_topic_once_after_any_crash(kind: FsyncKind) -> None:
    disk = new_disk()
    both = Both(disk, kind)
    both.begin()
    both.feeder.round()
    disk.settle()
    for _ in range(3):
        both.turn()
        both.feeder.round()
        both.turn()
    both.store.compact()
    both.feeder.round()
    both.close()
    for crashed in slice_of(disk.crash_states(plan=PREFIXES), 12):
        again = Both(crashed, kind)
        known = [each["wal_offset"] for each in again.told()]
        again.feeder.round()
        again.turn()
        again.feeder.round()
        found = [each["wal_offset"] for each in again.told()]
        assert found[: len(known)] == known, crashed.label
        assert found == sorted(set(found)), crashed.label
        happened = again.happened()
        assert found[-len(happened) :] == happened, crashed.label
        tried(f"machines: feeding, {kind.value}")
