"""`headwater verify` and `headwater repair` know the machines' files, and repair says the price."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.machines import MachineSettings
from headwater.core.errors import DamageError
from tests.machines.conftest import ORDER
from tests.unit.cli.conftest import Run
from tests.unit.cli.logs import everything_in

SHORT_LOG = EngineSettings(
    machines=MachineSettings(wal_segment_bytes=65_536, transitions_topic=None)
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two snapshots, and the log before the older one gone."""
    found = tmp_path / "data"
    with headwater.open(found, settings=SHORT_LOG) as database:
        database.append("orders", {"data": 1})
        machines = database.machines
        machines.put_machine("order", 1, ORDER)
        for number in range(5):
            context = {"amount": 1, "note": "x" * 30_000}
            machines.create_instance("order", 1, f"o-{number}", context)
        machines.compact()
        assert machines.compact().segments_deleted > 0
        machines.apply_event("o-1", "PAY")
    return found


def snapshots(directory: Path) -> list[Path]:
    return sorted((directory / "machines" / "snapshots").glob("*.snap"))


def spoil(path: Path) -> None:
    """In the middle: the block of instances."""
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 0x01
    path.write_bytes(data)


def test_one_damaged_snapshot_of_two_is_found_by_verify_and_needs_no_repair(
    run: Run, directory: Path
) -> None:
    assert run("verify", directory).code == 0
    spoil(snapshots(directory)[-1])
    found = run("verify", directory)
    assert found.code == 5
    assert f"machines/snapshots/{snapshots(directory)[-1].name}" in found.out
    told = run("wal", "verify", directory)
    assert told.code == 0, "a start goes on with the other one"
    assert "at start: moved to quarantine" in told.out
    assert run("repair", directory).out.endswith("nothing to repair\n")
    with headwater.open(directory) as database:
        assert database.machines.get_instance("o-1").state == "paid"


def test_two_damaged_snapshots_are_refused_planned_and_repaired_at_the_price_that_is_told(
    run: Run, directory: Path
) -> None:
    for path in snapshots(directory):
        spoil(path)
    assert run("verify", directory).code == 5
    assert run("wal", "verify", directory).code == 5
    with headwater.open(directory) as database, pytest.raises(DamageError, match="not served"):
        database.machines.get_instance("o-1")
    before = everything_in(directory)
    plan = run("repair", directory)
    assert plan.code == 0
    assert "write again from what can be read" in plan.out
    assert "Gives up 5 instance(s)" in plan.out
    assert f"headwater repair {directory} --apply" in plan.out
    (told,) = run("repair", directory, "--json").json()["plans"]
    assert (told["store"], told["steps"][0]["lost"]) == ("machines", 5)
    assert everything_in(directory) == before
    done = run("repair", directory, "--apply")
    assert done.code == 0, done.err
    assert "repaired" in done.out
    assert len(list((directory / "machines" / "snapshots" / "quarantine").iterdir())) == 2
    assert run("verify", directory).code == 0
    with headwater.open(directory) as database:
        assert database.machines.get_machine("order").definition["initial"] == "created"
        assert database.machines.get_instance("o-1").doubtful, "only its last event is known"
        assert database.machines.wal_stats().damaged_entries == 5
    assert run("repair", directory).out.endswith("nothing to repair\n")


def test_a_missing_segment_is_planned_and_repaired_and_the_instances_are_in_doubt(
    run: Run, directory: Path
) -> None:
    last = max((directory / "machines" / "wal").glob("*.wal"))
    last.unlink()
    assert run("verify", directory).code == 5
    plan = run("repair", directory)
    assert f"{last.name}: write again from what can be read: an empty segment" in plan.out
    assert run("repair", directory, "--apply").code == 0
    with headwater.open(directory) as database:
        found = database.machines.get_instance("o-1")
        assert (found.state, found.doubtful) == ("created", True)


def test_only_the_topics_log_is_looked_at_where_only_it_is_named(run: Run, directory: Path) -> None:
    for path in snapshots(directory):
        spoil(path)
    assert run("wal", "verify", directory / "wal").code == 0
    assert run("repair", directory / "wal").out.endswith("nothing to repair\n")
