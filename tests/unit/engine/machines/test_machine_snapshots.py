"""Snapshots of one instance: files of their own, several at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import PurePath

import msgspec
import pytest

from headwater.model.machines.errors import MachineError
from headwater.testing import FakeDisk, ManualClock
from tests.rig.machines import ORDER, SMALL, SteppedStore, new_disk
from tests.unit.engine.machines.test_machine_compaction import SNAPSHOTS, begun


@pytest.mark.claims(98)
def test_one_instance_can_be_put_into_a_file_of_its_own() -> None:
    disk, store = begun()
    name, _, _, offset, _, _ = store.snapshot_instance("a")
    found = msgspec.json.decode(disk.files()[SNAPSHOTS / name])
    assert found["instance"]["ctx"] == {"total": 5}
    assert offset == store.get_instance("a").last_wal_offset
    store.close()
    assert SteppedStore(disk).get_instance("a").context == {"total": 5}
    with pytest.raises(MachineError):
        SteppedStore(new_disk()).snapshot_instance("a")


class Busy(FakeDisk):
    """Between the first bytes of a new snapshot and its name, something else is done once."""

    meanwhile: Callable[[], object] | None = None

    def rename(self, source: PurePath, target: PurePath) -> None:
        work, self.meanwhile = self.meanwhile, None
        if work is not None:
            work()
        super().rename(source, target)


def test_two_snapshots_of_instances_at_once_are_two_files() -> None:
    disk = Busy(["/data"])
    store = SteppedStore(disk)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    for name in ("a", "b"):
        store.do(partial(store.create_instance, "order", 1, name))
    made: list[str] = []
    disk.meanwhile = lambda: made.append(store.snapshot_instance("b")[0])
    made.append(store.snapshot_instance("a")[0])
    found = [msgspec.json.decode(disk.files()[SNAPSHOTS / name]) for name in made]
    assert [each["instance"]["instance_id"] for each in found] == ["b", "a"]


def test_a_compaction_does_not_take_the_snapshot_of_an_instance_for_a_leftover() -> None:
    disk = Busy(["/data"])
    store = SteppedStore(disk)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "a"))
    disk.meanwhile = store.compact
    name = store.snapshot_instance("a").snapshot
    assert SNAPSHOTS / name in disk.files()


DAY_MS = 86_400_000
MINUTE_US = 60_000_000


def instance_files(disk: FakeDisk) -> list[str]:
    return sorted(path.name for path in disk.files() if path.suffix == ".instance")


def test_the_oldest_snapshots_of_instances_go_when_there_are_too_many() -> None:
    clock = ManualClock()
    disk, store = begun(replace(SMALL, instance_snapshots_max=3), clock)
    made = []
    for _ in range(5):
        clock.advance(2_000_000)
        made.append(store.snapshot_instance("a").snapshot)
    store.compact()
    whole = [path.name for path in disk.files() if path.suffix == ".snap"]
    clock.advance(MINUTE_US)
    store.maintenance.round()
    assert instance_files(disk) == sorted(made[2:])
    assert [path.name for path in disk.files() if path.suffix == ".snap"] == whole
    assert store.snapshot_count() == 3 + len(whole)


def test_a_snapshot_of_an_instance_goes_when_it_is_old() -> None:
    clock = ManualClock()
    settings = replace(SMALL, instance_snapshots_max=0, instance_snapshots_age_ms=DAY_MS)
    disk, store = begun(settings, clock)
    old = store.snapshot_instance("a").snapshot
    clock.advance(DAY_MS * 500)
    young = store.snapshot_instance("a").snapshot
    store.maintenance.round()
    assert instance_files(disk) == sorted((old, young))
    clock.advance(DAY_MS * 600)
    store.maintenance.round()
    assert instance_files(disk) == [young]
    store.close()
    again = SteppedStore(disk, settings, clock)
    clock.advance(DAY_MS * 1_000)
    again.maintenance.round()
    assert instance_files(disk) == []
    assert again.get_instance("a").state == "new"


def test_a_snapshot_that_is_being_written_is_not_removed() -> None:
    disk = Busy(["/data"])
    clock = ManualClock()
    store = SteppedStore(disk, replace(SMALL, instance_snapshots_max=1), clock)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "a"))
    clock.advance(MINUTE_US)

    def others() -> None:
        for _ in range(3):
            clock.advance(MINUTE_US)
            store.snapshot_instance("a")
        store.maintenance.round()

    disk.meanwhile = others
    name = store.snapshot_instance("a").snapshot
    assert SNAPSHOTS / name in disk.files()
    assert len(instance_files(disk)) == 2
