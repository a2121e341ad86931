"""The machines' log in the group-commit loop: four fsync policies, full disks, failing disks."""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from headwater.config.machines import FsyncKind, FsyncPolicy, MachineSettings, read_fsync_policy
from headwater.core.errors import DiskFullError, InvalidRequestError, InvariantError, PoisonedError
from headwater.engine.machines.recovery import sync_policy
from headwater.engine.owner import Pending
from headwater.format.machines.names import global_offset
from headwater.testing import FakeDisk, Fault, FaultDisk, ManualClock, Verb
from headwater.wal.committer import LogState
from headwater.wal.counters import WalCounters
from headwater.wal.entry_log import EntryLog, EntryPosition, EntryTicket
from headwater.wal.policy import EveryMs, EveryN, EveryWrite, Never
from tests.rig.machines import ORDER, PLACE, SMALL, SteppedStore, new_disk, policy

ROOMY = replace(SMALL, wal_segment_bytes=65_536)


def begun(
    kind: FsyncKind, amount: int = 0, settings: MachineSettings = ROOMY
) -> tuple[FakeDisk, SteppedStore]:
    disk = new_disk()
    store = SteppedStore(disk, replace(settings, fsync_policy=policy(kind, amount)))
    store.do(lambda: store.put_machine("order", 1, ORDER))
    return disk, store


def make(store: SteppedStore, *names: str) -> None:
    for name in names:
        store.do(partial(store.create_instance, "order", 1, name, {"total": 1}))


def survivors(disk: FakeDisk) -> set[str]:
    """Instances after a power loss right now."""
    return set(SteppedStore(disk.after_power_loss(), ROOMY).tables.instances)


@pytest.mark.claims(51, 75)
def test_every_write_syncs_before_each_answer() -> None:
    disk, store = begun(FsyncKind.EVERY_WRITE)
    for number in range(4):
        syncs = store.wal_stats().fsyncs
        make(store, f"i{number}")
        assert store.wal_stats().fsyncs == syncs + 1
        assert survivors(disk) == {f"i{n}" for n in range(number + 1)}


@pytest.mark.claims(75)
def test_writers_that_come_together_share_one_sync() -> None:
    disk, store = begun(FsyncKind.EVERY_WRITE)
    syncs = store.wal_stats().fsyncs
    with store.owner.holding():
        for number in range(50):
            store.owner.call(partial(store.create_instance, "order", 1, f"i{number}"))
    assert store.wal_stats().fsyncs == syncs + 1
    assert len(survivors(disk)) == 50


@pytest.mark.claims(76)
def test_every_n_has_fewer_than_n_writes_at_risk() -> None:
    disk, store = begun(FsyncKind.EVERY_N, 4)
    written: list[str] = []
    for number in range(12):
        make(store, f"i{number}")
        written.append(f"i{number}")
        lost = len(written) - len(survivors(disk) if number >= 3 else ())
        assert lost < 4 or number < 3
    assert store.wal_stats().fsyncs == 3
    killed = SteppedStore(disk.after_kill(), ROOMY)
    assert set(killed.tables.instances) == set(written)


@pytest.mark.claims(76)
def test_every_n_syncs_a_larger_group_before_it_is_answered() -> None:
    disk, store = begun(FsyncKind.EVERY_N, 4)
    lost: list[int] = []
    with store.owner.holding():
        for number in range(10):
            pending = store.owner.call(partial(store.create_instance, "order", 1, f"i{number}"))
            pending.on_done = lambda _: lost.append(10 - len(survivors(disk)))
    assert lost == [0] * 10


@pytest.mark.claims(77)
def test_every_ms_has_that_many_milliseconds_at_risk() -> None:
    disk, store = begun(FsyncKind.EVERY_MS, 100)
    make(store, "a")
    assert not survivors(disk)
    store.clock.advance(99_000)
    store.tick()
    assert not survivors(disk)
    store.clock.advance(1_000)
    store.tick()
    assert survivors(disk) == {"a"}
    store.clock.advance(50_000)
    make(store, "b")
    assert survivors(disk) == {"a"}


@pytest.mark.claims(78)
def test_never_leaves_syncing_to_the_operating_system() -> None:
    disk, store = begun(FsyncKind.NEVER)
    make(store, *"abcdef")
    store.clock.advance(10_000_000)
    store.tick()
    assert store.wal_stats().fsyncs == 0
    assert not survivors(disk)
    assert set(SteppedStore(disk.after_kill(), ROOMY).tables.instances) == set("abcdef")
    store.close()
    assert survivors(disk) == set("abcdef"), "a clean stop syncs"


@pytest.mark.claims(79, 108)
def test_policies_are_written_as_words_or_maps_of_one_key() -> None:
    forms = {
        "every_write": (FsyncPolicy(), EveryWrite()),
        "never": (FsyncPolicy(FsyncKind.NEVER), Never()),
        "every_n:1000": (FsyncPolicy(FsyncKind.EVERY_N, 1_000), EveryN(1_000)),
        "every_ms: 100": (FsyncPolicy(FsyncKind.EVERY_MS, 100), EveryMs(100)),
    }
    for form, (chosen, made) in forms.items():
        assert read_fsync_policy(form) == chosen
        assert sync_policy(chosen) == made
    assert read_fsync_policy({"every_n": 100}) == FsyncPolicy(FsyncKind.EVERY_N, 100)
    assert read_fsync_policy({"every_ms": 100}) == FsyncPolicy(FsyncKind.EVERY_MS, 100)
    for bad in (
        "", "always", "every_n", "every_n:0", "every_n:x", "never:3", {"every_n": "3"}, None, 3,
        {"every_n": 1, "every_ms": 1}, {"every_n": True}, {"every_write": 1}, "every_ms:-1",
    ):  # fmt: skip
        with pytest.raises(InvalidRequestError, match="fsync policy"):
            read_fsync_policy(bad)


def test_a_full_disk_refuses_writes_lets_deletes_through_and_resumes() -> None:
    settings = replace(SMALL, wal_segment_bytes=4_096, reserve_bytes=256)
    disk, store = begun(FsyncKind.EVERY_WRITE, settings=settings)
    disk.capacity_bytes = 4_096 + 600
    with pytest.raises(DiskFullError):
        make(store, *[f"i{number:03d}" for number in range(100)])
    made = list(store.tables.instances)
    state = store.state()
    assert store.log_state is LogState.FULL
    with pytest.raises(DiskFullError):
        make(store, "more")
    assert store.state() == state
    store.do(lambda: store.delete_instance(made[0]))
    with pytest.raises(DiskFullError):
        make(store, "more")
    disk.capacity_bytes = None
    store.clock.advance(1_000_000)
    make(store, "more")
    state = store.state()
    assert "more" in store.tables.instances
    assert SteppedStore(disk.after_power_loss(), settings).state() == state


def test_what_was_placed_behind_a_refused_write_is_refused_with_it() -> None:
    settings = replace(SMALL, wal_segment_bytes=1_024)
    disk, store = begun(FsyncKind.EVERY_WRITE, settings=settings)
    make(store, "a")
    state, place = store.state(), store.committed_offset
    disk.capacity_bytes = 1_100
    with store.owner.holding():
        work: list[Pending[Any]] = [
            store.owner.call(partial(store.create_instance, "order", 1, f"i{n}", {"total": 1}))
            for n in range(9)
        ]
        work.append(store.owner.call(lambda: store.apply_event("i8", "PAY")))
    assert all(isinstance(each.error, DiskFullError) for each in work)
    assert (store.state(), store.committed_offset) == (state, place)
    disk.capacity_bytes = None
    store.clock.advance(1_000_000)
    make(store, "b")
    state = store.state()
    assert SteppedStore(disk.after_power_loss(), settings).state() == state


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.SYNC_DATA])
def test_a_failed_write_or_sync_stops_all_answers_and_a_restart_has_what_was_answered(
    verb: Verb,
) -> None:
    fake = new_disk()
    fault = Fault(frozenset({verb}), errno.EIO, always=True, enabled=False)
    store = SteppedStore(FaultDisk(fake, [fault]), ROOMY)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    make(store, "a")
    state = store.state()
    fault.enabled = True
    for _ in range(2):
        with pytest.raises(PoisonedError):
            make(store, "b")
        fault.enabled = False
    assert store.state() == state
    assert store.log_state is LogState.POISONED
    assert store.get_instance("a").state == "new"
    again = SteppedStore(fake.after_power_loss(), ROOMY)
    assert again.state() == state


def test_a_ticket_at_a_wrong_place_is_never_written() -> None:
    disk = new_disk()
    disk.plant_directory(PLACE / "wal")
    log = EntryLog(
        disk, PLACE / "wal", EntryPosition(1, 0, 0, 1), WalCounters(), segment_bytes=1_024,
        reserve_bytes=64, zero_chunk_bytes=1_024,
    )  # fmt: skip
    log.open()
    log.write_group([EntryTicket(b"x" * 100, 1, global_offset(1, 0))], essential=False)
    before = disk.files()
    with pytest.raises(OSError, match="no room") as caught:
        log.write_group([EntryTicket(b"y", 1, global_offset(1, 101))], essential=False)
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(InvariantError, match="was given offset"):
        log.write_group([EntryTicket(b"y", 1, global_offset(1, 99))], essential=False)
    with pytest.raises(InvariantError, match="behind the end"):
        log.write_group([EntryTicket(b"y" * 1_000, 1, global_offset(1, 100))], essential=False)
    assert disk.files() == before


def test_a_batch_larger_than_a_segment_gets_a_segment_of_its_size() -> None:
    disk, store = begun(FsyncKind.EVERY_WRITE, settings=SMALL)
    make(store, "a")
    store.do(lambda: store.create_instance("order", 1, "big", {"text": "x" * 5_000}))
    make(store, "b")
    state = store.state()
    again = SteppedStore(disk.after_power_loss(), SMALL, ManualClock())
    assert again.state() == state
    assert max(len(data) for path, data in disk.files().items() if path.suffix == ".wal") > 5_000
