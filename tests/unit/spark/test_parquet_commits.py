"""The commit log of a Parquet table, crashed at every call and read by readers who know nothing."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headwater.core.errors import StorageError
from headwater.disk import PosixDisk
from headwater.spark.tables.location import TableLocation
from headwater.spark.tables.parquet import ParquetLake
from headwater.spark.tables.table import AlreadyLandedError, CommitConflictError
from headwater.testing import CHANGING_VERBS, CrashPoint, FaultDisk, SimulatedCrash, When
from tests.unit.spark.lake_tables import COLUMNS, land, landing, row, write_files
from tests.unit.spark.sink_rig import PushedClock, SinkClock

BY = ("amount",)


def globbed(directory: Path) -> list[int]:
    """What a reader of all files of the directory sees."""
    tables = [pq.ParquetFile(path).read() for path in sorted(directory.rglob("*.parquet"))]
    return sorted(seq for table in tables for seq in table.column("seq").to_pylist())


def committed(table: ParquetLake) -> list[int]:
    tables = [pq.ParquetFile(path).read() for path in table.files()]
    return sorted(seq for each in tables for seq in each.column("seq").to_pylist())


@pytest.mark.crash
@pytest.mark.parametrize("when", When)
def test_a_commit_that_dies_anywhere_is_whole_or_absent(tmp_path: Path, when: When) -> None:
    for nth in itertools.count(1):
        directory = tmp_path / f"{when.name}-{nth}"
        location = TableLocation.of(str(directory))
        land(ParquetLake(location), landing(0), [row(1), row(2)], partition_by=BY)
        disk = FaultDisk(PosixDisk(), crash=CrashPoint(nth, when, CHANGING_VERBS))
        dying = ParquetLake(location, disk=disk)
        files = write_files(dying, landing(1), [row(3), row(4), row(5)], COLUMNS, BY, "dying")
        try:
            dying.commit(landing(1), files)
        except SimulatedCrash:
            pass
        else:
            assert nth > 10, "the sweep saw hardly any calls"
            return
        disk.abandon()
        table = ParquetLake(location)
        seen = committed(table)
        assert seen in ([1, 2], [1, 2, 3, 4, 5])
        assert set(globbed(directory)) <= set(seen)
        again = write_files(table, landing(1), [row(3), row(4), row(5)], COLUMNS, BY, "again")
        if seen == [1, 2]:
            table.commit(landing(1), again)
        else:
            with pytest.raises(AlreadyLandedError):
                table.commit(landing(1), again)
        table.clean("app", 1)
        assert committed(table) == globbed(directory) == [1, 2, 3, 4, 5]
        assert list(directory.rglob("*.staged")) == []


def test_files_that_are_not_committed_have_no_name_a_reader_looks_for(tmp_path: Path) -> None:
    table = ParquetLake(TableLocation.of(str(tmp_path / "t")))
    land(table, landing(0), [row(1)])
    write_files(table, landing(1), [row(2)], COLUMNS)
    assert globbed(tmp_path / "t") == [1]


def test_a_commit_waits_for_another_and_gives_up_with_the_reason(tmp_path: Path) -> None:
    location = TableLocation.of(str(tmp_path / "t"))
    land(ParquetLake(location), landing(0), [row(1)])
    clock = SinkClock(PushedClock())
    lock = PosixDisk().lock_directory(tmp_path / "t" / "_commits")
    try:
        with pytest.raises(CommitConflictError, match="another process commits"):
            ParquetLake(location, clock).commit(landing(1), [])
    finally:
        lock.release()
    assert clock.waited_us > 0
    ParquetLake(location, clock).commit(landing(1), [])


def test_a_damaged_commit_is_refused_with_its_name(tmp_path: Path) -> None:
    table = ParquetLake(TableLocation.of(str(tmp_path / "t")))
    land(table, landing(0), [row(1)])
    path = sorted((tmp_path / "t" / "_commits").glob("*.json"))[-1]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(StorageError, match="no commit of a Parquet table"):
        table.landed(landing())


def test_a_committed_file_that_is_gone_is_told_not_skipped(tmp_path: Path) -> None:
    table = ParquetLake(TableLocation.of(str(tmp_path / "t")))
    land(table, landing(0), [row(1)])
    for path in (tmp_path / "t").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(StorageError, match="names a file that is gone"):
        table.commit(landing(1), [])
