"""Offline repair: it ends, it saves all that is not damaged, and a crash in it is harmless."""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.core.errors import StorageError
from headwater.format.names import QUARANTINE_DIRECTORY
from headwater.recovery.topics.plan import apply_repairs, plan_repairs
from headwater.recovery.topics.report import inspect_wal
from headwater.testing import (
    DROPS,
    PREFIXES,
    CrashPlan,
    FakeDisk,
    Item,
)
from tests.crash.damage import SPECIMENS, Specimen
from tests.crash.matrix import FULL, slice_of, tried
from tests.crash.recovery_check import check_goes_on, check_lease_request
from tests.crash.session import WAL, Session, log_files

pytestmark = pytest.mark.crash

ROUNDS_MAX = 6


def is_refused(disk: FakeDisk) -> bool:
    return bool(inspect_wal(disk, WAL).refusals)


def repair(disk: FakeDisk, what: str) -> None:
    """Plan and apply until the log is accepted."""
    for _ in range(ROUNDS_MAX):
        if not is_refused(disk):
            return
        plans = plan_repairs(disk, WAL)
        assert plans, f"{what}: refused, and no plan"
        for plan in plans:
            apply_repairs(disk, plan)
    raise AssertionError(f"{what}: still refused after {ROUNDS_MAX} repairs")


def damaged(specimen: Specimen, every: int) -> list[tuple[str, FakeDisk]]:
    """Logs that are refused: flips, zeroed blocks, missing files."""
    found: list[tuple[str, FakeDisk]] = []
    for path in specimen.paths:
        content = specimen.disk().files()[path]
        for offset in slice_of(range(0, len(content), 5), every):
            disk = specimen.disk()
            disk.damage(path, offset, bytes([content[offset] ^ 0x10]))
            found.append((f"byte {offset} of {path}", disk))
        for offset in range(0, len(content) - 64, 64):
            disk = specimen.disk()
            disk.damage(path, offset, bytes(64))
            found.append((f"64 zeros at {offset} of {path}", disk))
        for length in range(0, len(content), 101):
            disk = specimen.disk()
            disk.truncate_file(path, length)
            found.append((f"{path} cut to {length}", disk))
        disk = specimen.disk()
        disk.unlink(path)
        disk.settle()
        found.append((f"{path} missing", disk))
    return [(what, disk) for what, disk in found if is_refused(disk)]


def check_repaired(specimen: Specimen, disk: FakeDisk, what: str) -> list[Item]:
    """What is left is part of what was written, in order, and the log can be used."""
    found = Session(disk).abandon()
    kept = list(found.items)
    extra = Counter(kept) - Counter(specimen.items)
    assert not extra, f"{what}: made up {extra}"
    positions = [specimen.items.index(item) for item in kept]
    assert positions == sorted(positions), f"{what}: out of order"
    check_lease_request(disk, found)
    return kept


@pytest.mark.parametrize("name", ["stopped_cleanly", "left_idle"])
def test_a_repair_ends_and_loses_only_what_is_damaged(name: str) -> None:
    specimen = SPECIMENS[name]()
    per_file = {path.name: 0 for path in specimen.paths}
    for what, disk in damaged(specimen, 9):
        repair(disk, what)
        kept = check_repaired(specimen, disk, what)
        if what.startswith("byte"):
            # One flipped byte spoils at most the group it is in and the chain to the next.
            assert len(specimen.items) - len(kept) <= 4, f"{what}: lost too much"
            per_file[what.rpartition("/")[2]] += 1
        check_goes_on(disk, Session(disk).abandon())
        tried("repairs: ended and kept the rest")
    assert any(per_file.values())


@pytest.mark.parametrize("name", ["stopped_cleanly", "left_idle"])
def test_a_crash_at_any_call_of_a_repair_can_be_repaired_to_the_same_log(name: str) -> None:
    specimen = SPECIMENS[name]()
    plan = CrashPlan(PREFIXES.kinds | DROPS.kinds)
    for what, disk in damaged(specimen, 40)[:: 1 if FULL else 15]:
        whole = disk.clone()
        whole.settle()
        disk.settle()
        repair(whole, what)
        expected = check_repaired(specimen, whole, what)
        repair(disk, what)
        for state in disk.crash_states(plan=plan):
            label = f"{what}; {state.label}"
            repair(state, label)
            assert check_repaired(specimen, state, label) == expected, label
            tried("repairs: crash in a repair")


def test_a_repair_keeps_a_copy_of_everything_it_passes_over() -> None:
    specimen = SPECIMENS["stopped_cleanly"]()
    path = next(path for path in specimen.paths if path.name.startswith("wal-"))
    disk = specimen.disk()
    disk.damage(path, 200, b"\xff" * 8)
    before = disk.files()[path]
    with pytest.raises(StorageError):
        Session(disk)
    repair(disk, "a damaged group")
    assert disk.files()[path] == before, "a repair changes no log file"
    copies = {p: data for p, data in log_files(disk).items() if QUARANTINE_DIRECTORY in p.parts}
    assert before in copies.values()
