"""The doctor measures what is there, and does not believe everything."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest

from headwater.cli.doctor import Probe, doubts, file_system_of, probe
from headwater.core.clock import SystemClock
from headwater.core.units import GIB, MIB
from headwater.disk import PosixDisk
from tests.unit.cli.conftest import Run

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
/dev/vdb /data/with\\040blank xfs rw 0 0
/dev/vdc /data/with\\040blank/deeper btrfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/tmp", "tmpfs"),
        ("/tmp/x/y", "tmpfs"),
        ("/tmpfoo", "ext4"),
        ("/data/with blank/x", "xfs"),
        ("/data/with blank/deeper/x", "btrfs"),
    ],
)
def test_the_nearest_mount_names_the_file_system(path: str, kind: str) -> None:
    assert file_system_of(MOUNTS, PurePath(path)) == kind


@pytest.mark.parametrize(
    ("sync_us", "bytes_per_s", "kind", "why"),
    [
        (400, 500 * MIB, "ext4", None),
        (60, 6 * GIB, "xfs", None),
        (400, 500 * MIB, "tmpfs", "is memory"),
        (4, 2 * GIB, "ext4", "no storage is that fast"),
        (400, 30 * GIB, "ext4", "did not reach a disk"),
    ],
    ids=["plain", "fast flash", "memory", "too fast", "too much"],
)
def test_a_disk_that_cannot_be_so_fast_is_not_believed(
    sync_us: int, bytes_per_s: int, kind: str, why: str | None
) -> None:
    told = doubts(Probe((sync_us,) * 9, bytes_per_s), kind)
    if why is None:
        assert told is None
    else:
        assert told is not None
        assert why in told


def test_the_probe_measures_syncs_and_leaves_nothing_behind(tmp_path: Path) -> None:
    found = probe(PosixDisk(), tmp_path, SystemClock(), 0.05)
    assert len(found.sync_us) >= 20
    assert list(found.sync_us) == sorted(found.sync_us)
    assert found.percentile_us(0.5) <= found.percentile_us(1.0)
    assert found.bulk_bytes_per_s > 0
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_tells_every_check_for_people_and_programs(run: Run, tmp_path: Path) -> None:
    told = run("doctor", tmp_path, "--seconds", "0.1", "--json").json()
    whats = [check["what"] for check in told["checks"]]
    assert whats[:4] == ["python", "hot loops", "system", "open files"]
    assert told["sync_us"]["count"] >= 20
    assert told["suggested"]["wal_shards"] == 1
    outcome = run("doctor", tmp_path / "not-made-yet", "--seconds", "0.1")
    assert "fdatasync, 4 KiB" in outcome.out
    assert outcome.code in (0, 5), "5 where the temporary directory is memory"
    missing = run("doctor", tmp_path / "no" / "where")
    assert (missing.code, missing.complaint()) == (
        2,
        f"headwater: there is no directory {tmp_path}/no/where; check the path",
    )


def test_the_doctor_says_when_the_hot_loops_are_not_compiled(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_PURE", "1")
    told = run("doctor", tmp_path, "--seconds", "0.1", "--json").json()
    check = next(check for check in told["checks"] if check["what"] == "hot loops")
    assert (check["found"], check["verdict"]) == ("not compiled", "note")
    assert "gcc" in check["advice"]
