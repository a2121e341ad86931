"""The machines' log at start: torn tails are cut, damage is skipped and told, loss is refused."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import PurePath

import pytest

from headwater.api import machine_requests as requests
from headwater.config.machines import FsyncKind, MachineSettings
from headwater.core.errors import DamageError, ForeignFileError, NewerFormatError
from headwater.disk import OpenMode
from headwater.engine.machines.recovery import inspect_machines
from headwater.format.crc32c import crc32c
from headwater.format.machines.entry import ENTRY, RUN_ENTRIES_MAX, EntryRun, decode_entry, read_run
from headwater.format.machines.names import segment_of, within_segment
from headwater.testing import TORN, CrashKind, FakeDisk, Rest
from headwater.testing.fake_disk import FakeFile
from tests.rig.machines import ORDER, PLACE, SMALL, SteppedStore, new_disk, policy

BIG = replace(SMALL, wal_segment_bytes=4_096)
FIRST = PLACE / "wal" / "0000000000000001.wal"


def filled(settings: MachineSettings = BIG, instances: int = 4) -> tuple[FakeDisk, SteppedStore]:
    """A machine, some instances, two events for each; open."""
    disk = new_disk()
    store = SteppedStore(disk, settings)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    for number in range(instances):
        store.do(partial(store.create_instance, "order", 1, f"i{number}", {"total": number + 1}))
    for event in ("PAY", "SHIP"):
        for number in range(instances):
            store.do(partial(store.apply_event, f"i{number}", event, {"by": number}))
    return disk, store


def offsets(disk: FakeDisk, path: PurePath = FIRST) -> list[int]:
    """Where the entries of a segment begin."""
    buffer, at, found = disk.files()[path], 0, []
    while buffer.startswith(b"WLOG", at):
        found.append(at)
        at += decode_entry(buffer, at, len(buffer)).size
    return found


def reopened(disk: FakeDisk, settings: MachineSettings = BIG) -> SteppedStore:
    return SteppedStore(FakeDisk(image=disk.snapshot()), settings)


@pytest.mark.claims(105, 106, 107)
def test_a_batch_torn_at_any_byte_is_absent_as_a_whole() -> None:
    disk, store = filled(instances=1)
    before = store.state()
    batch: list[requests.Request] = [
        requests.CreateInstance("order", instance_id=f"b{n}") for n in range(3)
    ]
    point = disk.point
    store.do(lambda: store.batch(batch))
    plan = replace(TORN, tear_every_byte_max=10_000, rests=(Rest.ABSENT,))
    torn = [
        each for each in disk.crash_states(point + 1, plan) if each.crash_kind is CrashKind.TORN
    ]
    assert len(torn) > 300
    for crashed in torn:
        again = SteppedStore(crashed, BIG)
        assert again.state() == before, crashed.label
        assert not again.report.log.damage, crashed.label


@pytest.mark.claims(105, 106)
@pytest.mark.parametrize("keep", [1, 23, 24, 60])
def test_a_partial_entry_at_the_end_is_cut_and_kept_in_quarantine(keep: int) -> None:
    disk, store = filled(instances=1)
    states = [store.state()]
    end = within_segment(store.committed_offset)
    store.do(lambda: store.apply_event("i0", "CLOSE"))
    written = disk.files()[FIRST]
    disk.damage(FIRST, end + keep, bytes(len(written) - end - keep))
    crashed = FakeDisk(image=disk.snapshot())
    again = SteppedStore(crashed, BIG)
    assert again.state() == states[0]
    torn = again.report.log.torn
    assert torn is not None
    assert within_segment(torn.offset) == end
    kept = crashed.files()[PLACE / "wal" / "quarantine" / f"{FIRST.name}.{end}.torn"]
    assert kept == written[end : end + keep].rstrip(b"\0")
    assert not crashed.files()[FIRST][end:].strip(b"\0")
    assert SteppedStore(FakeDisk(image=crashed.snapshot()), BIG).report.log.torn is None


@pytest.mark.claims(80, 100, 101, 102, 103, 104)
def test_a_damaged_entry_in_the_middle_is_skipped_counted_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, store = filled()
    store.close()
    begins = offsets(disk)
    pay_i1 = begins[1 + 4 + 1]
    disk.damage(FIRST, pay_i1 + 40, b"\xff")
    with caplog.at_level(logging.WARNING, "headwater.machines"):
        again = reopened(disk)
    assert [within_segment(each.offset) for each in again.report.log.damage] == [pay_i1]
    assert again.report.damaged_entries == 1
    assert again.wal_stats().damaged_entries == 1
    text = caplog.text
    assert f"at {pay_i1}" in text
    assert "1 entries of the log were damaged" in text


def test_the_bytes_that_a_start_skips_stay_where_they_are_and_a_copy_is_in_quarantine() -> None:
    disk, store = filled()
    store.close()
    begin, end = offsets(disk)[6:8]
    disk.damage(FIRST, begin + 40, b"\xff")
    damaged = disk.files()[FIRST]
    SteppedStore(disk, BIG)
    assert disk.files()[FIRST][:end] == damaged[:end]
    kept = PLACE / "wal" / "quarantine" / f"{FIRST.name}.{begin}.damaged"
    assert disk.files()[kept] == damaged[begin:end].rstrip(b"\0")


def test_an_instance_whose_entry_was_lost_says_so_and_keeps_saying_it() -> None:
    disk, store = filled()
    store.close()
    disk.damage(FIRST, offsets(disk)[1 + 4 + 1] + 40, b"\xff")
    again = reopened(disk)
    doubtful = {name: again.is_doubtful(again.get_instance(name)) for name in ("i0", "i1", "i3")}
    assert doubtful == {"i0": False, "i1": True, "i3": False}
    assert again.get_instance("i1").state == "shipped"
    assert again.history("i1").read().doubtful
    again.do(lambda: again.apply_event("i1", "CLOSE"))
    assert again.is_doubtful(again.get_instance("i1"))
    again.compact()
    again.close()
    third = SteppedStore(again._disk, BIG)
    assert third.is_doubtful(third.get_instance("i1"))
    assert not third.is_doubtful(third.get_instance("i0"))
    third.do(lambda: third.delete_instance("i1"))
    third.do(lambda: third.create_instance("order", 1, "i1"))
    assert not third.is_doubtful(third.get_instance("i1"))


def test_damage_to_the_last_entry_of_an_instance_leaves_all_in_doubt_it_may_concern() -> None:
    disk, store = filled()
    store.close()
    last = offsets(disk)[-2]  # of i2; i3 was changed after it
    disk.damage(FIRST, last + 40, b"\xff")
    again = reopened(disk)
    doubtful = {name: again.is_doubtful(again.get_instance(f"i{name}")) for name in range(4)}
    assert doubtful == {0: True, 1: True, 2: True, 3: False}
    again.do(lambda: again.apply_event("i0", "CLOSE"))
    assert again.is_doubtful(again.get_instance("i0")), "an event does not take the doubt away"
    again.close()
    once_more = SteppedStore(again._disk, BIG)
    assert once_more.is_doubtful(once_more.get_instance("i0"))


def test_damage_at_every_byte_is_told_or_harmless() -> None:
    """A flipped bit never makes an instance silently wrong."""
    disk, store = filled(instances=2)
    store.close()
    wanted = store.state()
    used = within_segment(store.committed_offset)
    contents = disk.files()[FIRST]
    for at in range(0, used, 3):
        bad = FakeDisk(image=disk.snapshot())
        bad.damage(FIRST, at, bytes([contents[at] ^ (1 << at % 8)]))
        try:
            again = SteppedStore(bad, BIG)
        except NewerFormatError:
            pytest.fail("a flipped bit was taken for a newer version")
        assert again.report.log.damage, at
        for name, instance in again.tables.instances.items():
            true = next(each for each in wanted["instances"] if each.id == name)
            assert instance == true or again.is_doubtful(instance), (at, name)


def test_a_log_cut_behind_a_witness_is_damage_not_a_torn_tail() -> None:
    disk, store = filled()
    store.close()
    begins = offsets(disk)
    contents = disk.files()[FIRST]
    for keep in (begins[-1], begins[-2], begins[-2] + 7):
        bad = FakeDisk(image=disk.snapshot())
        bad.damage(FIRST, keep, bytes(len(contents) - keep))
        again = SteppedStore(bad, BIG)
        assert again.report.log.damage, keep
        assert again.is_doubtful(again.get_instance("i0")), keep
        bad.truncate_file(FIRST, keep)


def test_a_segment_file_that_was_cut_short_is_damage_and_writing_goes_on() -> None:
    disk, store = filled()
    store.close()
    disk.truncate_file(FIRST, offsets(disk)[-1])
    again = reopened(disk)
    assert again.report.log.damage
    again.do(lambda: again.create_instance("order", 1, "after"))
    assert segment_of(again.get_instance("after").last_wal_offset) == 2
    state = again.state()
    again.close()
    assert SteppedStore(again._disk, BIG).state() == state


def test_writing_goes_on_after_damage_and_the_next_start_finds_the_same() -> None:
    disk, store = filled()
    store.close()
    disk.damage(FIRST, offsets(disk)[3] + 30, b"\xee\xee")
    again = reopened(disk)
    again.do(lambda: again.create_instance("order", 1, "after", {"total": 1}))
    again.do(lambda: again.apply_event("after", "PAY"))
    state = again.state()
    again.close()
    third = SteppedStore(again._disk, BIG)
    assert third.state() == state
    assert len(third.report.log.damage) == 1


def test_a_lost_creation_leaves_an_instance_that_is_in_doubt() -> None:
    disk, store = filled()
    store.close()
    disk.damage(FIRST, offsets(disk)[1] + 40, b"\xff")
    again = reopened(disk)
    found = again.get_instance("i0")
    assert found.state == "shipped"
    assert again.is_doubtful(found)


def test_a_missing_segment_in_the_middle_is_refused() -> None:
    disk, store = filled(SMALL, instances=6)
    store.close()
    path = PLACE / "wal" / "0000000000000002.wal"
    disk.unlink(path)
    with pytest.raises(DamageError, match="missing") as caught:
        reopened(disk, SMALL)
    assert caught.value.path == path


def test_a_missing_last_segment_is_refused() -> None:
    disk, store = filled(SMALL, instances=6)
    store.close()
    segments = sorted(path for path in disk.files() if path.suffix == ".wal")
    disk.unlink(segments[-1])
    with pytest.raises(DamageError, match="missing"):
        reopened(disk, SMALL)


def test_a_log_whose_beginning_is_gone_needs_its_snapshot() -> None:
    disk, store = filled(SMALL, instances=6)
    store.compact()
    store.compact()
    store.close()
    for path in [path for path in disk.files() if path.parent.name == "snapshots"]:
        disk.unlink(path)
    with pytest.raises(DamageError, match="no sound snapshot"):
        reopened(disk, SMALL)


def test_an_entry_of_a_newer_kind_is_refused_and_nothing_is_changed() -> None:
    disk, store = filled()
    store.close()
    buffer = bytearray(disk.files()[FIRST])
    at = offsets(disk)[3]
    size = decode_entry(bytes(buffer), at, len(buffer)).size
    buffer[at + ENTRY.offset_of("type")] = 9
    buffer[at + size - 4 : at + size] = crc32c(bytes(buffer[at : at + ENTRY.size])).to_bytes(
        4, "big"
    )
    disk.write_file(FIRST, bytes(buffer))
    before = disk.files()
    with pytest.raises(NewerFormatError, match="does not know"):
        SteppedStore(disk, BIG)
    assert disk.files() == before


def test_a_foreign_file_in_the_log_is_refused() -> None:
    disk, store = filled()
    store.close()
    disk.write_file(PLACE / "wal" / "notes.txt", b"hello")
    with pytest.raises(ForeignFileError, match="does not belong"):
        reopened(disk)


def test_what_recovery_keeps_survives_a_power_loss_right_after() -> None:
    """A killed process leaves bytes in memory only; recovery makes them durable."""
    disk = new_disk()
    lazy = replace(BIG, fsync_policy=policy(FsyncKind.NEVER))
    store = SteppedStore(disk, lazy)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "a"))
    killed = disk.clone()  # with all that was never synced still in memory only
    again = SteppedStore(killed, lazy)
    assert "a" in again.tables.instances
    third = SteppedStore(killed.after_power_loss(), lazy)
    assert "a" in third.tables.instances
    assert not third.report.log.damage


def test_damage_is_told_from_a_torn_tail_without_a_clean_stop() -> None:
    """Nobody wrote CURRENT since: the entries behind the damage vouch for what is before them."""
    disk, store = filled()
    bad = offsets(disk)[5]
    disk.damage(FIRST, bad + 40, b"\xff")
    again = reopened(disk)
    assert [within_segment(each.offset) for each in again.report.log.damage] == [bad]
    assert again.report.log.torn is None
    assert set(again.tables.instances) == set(store.tables.instances)


def test_entries_that_are_missing_without_a_trace_are_found_by_their_numbers() -> None:
    disk, store = filled()
    store.close()
    begins = offsets(disk)
    buffer = disk.files()[FIRST]
    gap = begins[6] - begins[5]
    disk.write_file(FIRST, buffer[: begins[5]] + buffer[begins[6] :] + bytes(gap))
    again = reopened(disk)
    first = again.report.log.damage[0]
    assert (within_segment(first.offset), first.entries) == (begins[5], 1)
    assert again.is_doubtful(again.get_instance("i0"))


def test_a_log_with_many_bad_places_is_read_to_its_end_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, store = filled(replace(SMALL, wal_segment_bytes=65_536), instances=60)
    store.close()
    for begin in offsets(disk)[70:170:4]:
        disk.damage(FIRST, begin + 40, b"\xff")
    decoded: list[int] = []

    def counting(buffer: bytes, at: int, limit: int = RUN_ENTRIES_MAX) -> EntryRun:
        run = read_run(buffer, at, limit)
        decoded.extend(run.offsets or [at])
        return run

    for each in ("segment", "replay"):
        monkeypatch.setattr(f"headwater.recovery.machines.{each}.read_run", counting)
    again = reopened(disk, replace(SMALL, wal_segment_bytes=65_536))
    assert len(again.report.log.damage) == 25
    assert len(decoded) < 4 * 181


def test_old_entries_without_a_header_checksum_are_read() -> None:
    disk, store = filled(instances=1)
    store.close()
    buffer = disk.files()[FIRST]
    plain = bytearray()
    for at in offsets(disk):
        entry = decode_entry(buffer, at, len(buffer))
        head = bytearray(buffer[at : at + ENTRY.size])
        head[ENTRY.offset_of("flags")] = 0
        plain += head + entry.payload
    old = new_disk()
    old.write_file(FIRST, bytes(plain) + bytes(len(buffer) - len(plain)))
    again = SteppedStore(old, BIG)
    assert again.report.log.entries == 4
    assert again.get_instance("i0").state == "shipped"


def opened_segments(disk: FakeDisk, settings: MachineSettings) -> Counter[str]:
    """How often a start opens each segment, before it repairs any."""
    opened: Counter[str] = Counter()

    class Counting(FakeDisk):
        def open(self, path: PurePath, mode: OpenMode) -> FakeFile:
            opened.update([path.name] if path.suffix == ".wal" else [])
            return super().open(path, mode)

    inspect_machines(Counting(image=disk.snapshot()), PLACE, settings)
    return opened


def test_a_start_reads_each_segment_of_a_sound_log_once() -> None:
    disk, _ = filled(SMALL, instances=6)
    segments = sorted(path.name for path in disk.files() if path.suffix == ".wal")
    assert len(segments) > 3
    assert opened_segments(disk, SMALL) == Counter(segments)


def test_entries_behind_damage_are_delivered_once() -> None:
    """What is before it was delivered while the survey read it."""
    disk, store = filled(SMALL, instances=6)
    store.close()
    disk.damage(FIRST, offsets(disk)[2] + 40, b"\xff")
    report = inspect_machines(disk, PLACE, SMALL).report
    assert (report.log.entries, report.damaged_entries) == (1 + 3 * 6 - 1, 1)


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
@pytest.mark.parametrize("damaged", [None, 0, 7, 11, 18])
def test_it_makes_no_difference_how_many_entries_are_read_together(
    monkeypatch: pytest.MonkeyPatch, limit: int, damaged: int | None
) -> None:
    disk, store = filled(SMALL, instances=3)
    pair: list[requests.Request] = [
        requests.CreateInstance("order", instance_id=f"b{n}") for n in range(4)
    ]
    store.do(lambda: store.batch(pair))
    store.do(lambda: store.batch([requests.ApplyEvent(f"i{n}", "CLOSE") for n in range(3)]))
    if damaged is not None:
        log = sorted(path for path in disk.files() if path.suffix == ".wal")
        begins = [(path, at) for path in log for at in offsets(disk, path)]
        path, at = begins[min(damaged, len(begins) - 1)]
        disk.damage(path, at + 40, b"\xff")
    wanted = inspect_machines(disk, PLACE, SMALL)
    for each in ("segment", "replay"):
        name = f"headwater.recovery.machines.{each}.read_run"
        monkeypatch.setattr(name, lambda buffer, at, most=limit: read_run(buffer, at, most))
    found = inspect_machines(disk, PLACE, SMALL)
    assert found.tables.canonical() == wanted.tables.canonical()
    assert found.report == wanted.report
