"""A directory of Parquet files with a commit log of its own, on a file system of this machine.

| | |
|---|---|
| `_commits/000000000012.json` | commit 12: columns, files it added, the last batch of each app |
| `_staging/... .staged` | files that are no part of the table, or not in their place yet |
| `date=2026-01-31/... .parquet` | files of the table |

A commit is one file that appears whole and synced, under a lock and under the next number. It names
files that still lie in `_staging`; after it they are moved to their place. A writer that died
between the two left files to be moved, and the next one moves them before anything else. A reader
of all files that end in `.parquet` therefore never sees what was not committed; `files` gives all
that was, also what was not moved yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from headwater.core.clock import Clock, Doorbell, SystemClock
from headwater.core.errors import DirectoryInUseError, RequestError, StorageError
from headwater.core.units import MIB, US_PER_S
from headwater.disk import PosixDisk
from headwater.disk.protocol import DirectoryLock, Disk
from headwater.disk.whole_files import read_whole, replace_file, sync_names
from headwater.spark.tables.columns import check_partitions, is_wider, merged
from headwater.spark.tables.location import TableLocation
from headwater.spark.tables.table import (
    AlreadyLandedError,
    CommitConflictError,
    FileLayout,
    Landed,
    Landing,
    WrittenFile,
    app_directory,
    group_directory,
    layout_of,
    losers,
)

COMMITS: Final = "_commits"
STAGING: Final = "_staging"
STAGED: Final = ".staged"
_LOCK_WITHIN_US: Final = 30 * US_PER_S
_LOCK_STEP_US: Final = US_PER_S // 20
_COMMIT_BYTES_MAX: Final = 256 * MIB


class CommittedApp(msgspec.Struct, frozen=True):
    app: str
    batch: int
    checkpoint: str
    rules: str


class Added(msgspec.Struct, frozen=True):
    path: str
    """Where it is in the end."""
    staged: str
    """Where it was when the commit was made."""
    rows: int
    bytes: int


class Commit(msgspec.Struct, frozen=True):
    """All but the files is repeated from commit to commit, so that the last one is enough."""

    number: int
    columns: str
    """The Arrow schema, as base64 of its IPC form."""
    partition_by: tuple[str, ...]
    apps: dict[str, CommittedApp] = {}
    added: tuple[Added, ...] = ()


_decoder = msgspec.json.Decoder(Commit)


class ParquetLake:
    """Implements `Table`."""

    def __init__(
        self, location: TableLocation, clock: Clock | None = None, disk: Disk | None = None
    ) -> None:
        if not location.is_local:
            raise RequestError(
                f"a Parquet table is written to a file system of this machine, not to "
                f"{location.uri}: object stores have no lock to commit under. Use delta or iceberg"
            )
        self.location = location
        self._disk: Disk = disk or PosixDisk()
        self._clock = clock or SystemClock()

    def schema(self) -> Any | None:
        last = self._last()
        return None if last is None else _schema_of(last)

    def landed(self, landing: Landing) -> Landed | None:
        last = self._last()
        return None if last is None else _landed(last, landing)

    def evolve(self, schema: Any, partition_by: Sequence[str]) -> Any:
        check_partitions(schema, partition_by)
        self.location.make_directories(COMMITS)
        with self._locked():
            last = self._last()
            if last is None:
                self._write(Commit(0, _text_of(schema), tuple(partition_by)))
                return schema
            self._move(last)
            if last.partition_by != tuple(partition_by):
                raise RequestError(
                    f"{self.location.uri} is partitioned by {', '.join(last.partition_by) or '-'}, "
                    f"not by {', '.join(partition_by) or '-'}: a table keeps its partitioning"
                )
            there = _schema_of(last)
            wanted = merged(there, schema, _widens, self.location.uri)
            if not wanted.equals(there):
                changed = {"number": last.number + 1, "columns": _text_of(wanted), "added": ()}
                self._write(msgspec.structs.replace(last, **changed))
            return wanted

    def commit(self, landing: Landing, files: Sequence[WrittenFile]) -> None:
        with self._locked():
            last = self._last()
            if last is None:
                raise CommitConflictError(f"{self.location.uri} was deleted while it was written")
            self._move(last)
            landed = _landed(last, landing)
            if landed is not None and landed.batch >= landing.batch:
                raise AlreadyLandedError(f"batch {landing.batch} of {landing.app} is there already")
            own = CommittedApp(landing.app, landing.batch, landing.checkpoint, landing.rules)
            staging = f"{group_directory(STAGING, landing)}/"
            commit = msgspec.structs.replace(
                last,
                number=last.number + 1,
                apps={**last.apps, app_directory(landing.app): own},
                added=tuple(
                    Added(
                        file.path.removeprefix(staging).removesuffix(STAGED),
                        file.path,
                        file.rows,
                        file.bytes,
                    )
                    for file in files
                ),
            )
            self._write(commit)
            self._move(commit)

    def layout(self, landing: Landing, partition_by: Sequence[str]) -> FileLayout:
        suffix = f".parquet{STAGED}"
        return layout_of(self.location, STAGING, landing, partition_by, True, suffix)

    def clean(self, app: str, after: int) -> int:
        """Whatever lies in the staging directory of this app is no part of the table."""
        if self._last() is None:
            return 0
        with self._locked():
            last = self._last()
            if last is not None:
                self._move(last)
            own = self.location.files_under(f"{STAGING}/{app_directory(app)}")
            return sum(map(self.location.delete, own))

    def discard(self, landing: Landing, kept: Sequence[str]) -> int:
        return sum(map(self.location.delete, losers(self.location, STAGING, landing, ())))

    def read(self, columns: Sequence[str]) -> Any:
        from pyarrow import dataset

        rows = dataset.dataset(
            self.files(),
            schema=self.schema(),
            format="parquet",
            partitioning=dataset.partitioning(flavor="hive"),
            partition_base_dir=self.location.path,
        )
        return rows.to_table(columns=list(columns))

    def files(self) -> list[str]:
        files: list[str] = []
        for number in self._numbers():
            for added in self._read(number).added:
                moved = self._disk.exists(self._path(added.path))
                files.append(self.location.full(added.path if moved else added.staged))
        return files

    # -- commits

    def _numbers(self) -> list[int]:
        try:
            names = self._disk.list_directory(self._path(COMMITS))
        except FileNotFoundError:
            return []
        stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def _last(self) -> Commit | None:
        numbers = self._numbers()
        return self._read(numbers[-1]) if numbers else None

    def _read(self, number: int) -> Commit:
        path = self._commit_path(number)
        try:
            return _decoder.decode(read_whole(self._disk, path, _COMMIT_BYTES_MAX))
        except msgspec.MsgspecError as error:
            raise StorageError(
                f"this is no commit of a Parquet table ({error})",
                path=path,
                advice="restore the file, or read the table's files into a new table",
            ) from error

    def _write(self, commit: Commit) -> None:
        replace_file(self._disk, self._commit_path(commit.number), msgspec.json.encode(commit))

    def _move(self, commit: Commit) -> None:
        """Files of a commit to their place, those that are not there yet."""
        touched: set[PurePosixPath] = set()
        for added in commit.added:
            staged, path = self._path(added.staged), self._path(added.path)
            if self._disk.exists(path):
                continue
            if not self._disk.exists(staged):
                raise StorageError(
                    f"commit {commit.number} names a file that is gone",
                    path=path,
                    advice="restore it from a backup, or remove it from the commit",
                )
            if path.parent not in touched:
                self.location.make_directories(str(PurePosixPath(added.path).parent))
            self._disk.rename(staged, path)
            touched |= {path.parent, staged.parent}
        for directory in touched:
            sync_names(self._disk, directory)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._lock()
        try:
            yield
        finally:
            lock.release()

    def _lock(self) -> DirectoryLock:
        deadline_us = self._clock.monotonic_us() + _LOCK_WITHIN_US
        while True:
            try:
                return self._disk.lock_directory(self._path(COMMITS))
            except DirectoryInUseError as error:
                now_us = self._clock.monotonic_us()
                if now_us > deadline_us:
                    raise CommitConflictError(
                        f"another process commits to {self.location.uri} and does not end"
                    ) from error
                self._clock.wait(Doorbell(), now_us + _LOCK_STEP_US)

    def _path(self, relative: str) -> PurePosixPath:
        return PurePosixPath(self.location.full(relative))

    def _commit_path(self, number: int) -> PurePosixPath:
        return self._path(f"{COMMITS}/{number:012d}.json")


def _landed(commit: Commit, landing: Landing) -> Landed | None:
    own = commit.apps.get(app_directory(landing.app))
    if own is None:
        return None
    return Landed(
        own.batch,
        same_checkpoint=own.checkpoint == landing.checkpoint,
        same_rules=own.rules == landing.rules,
    )


def _widens(there: Any, wanted: Any) -> bool:
    """Old files keep the narrow type; readers get the wide one, see the page."""
    return is_wider(wanted, there)


def _text_of(schema: Any) -> str:
    import base64

    return base64.b64encode(bytes(schema.serialize())).decode()


def _schema_of(commit: Commit) -> Any:
    import base64

    import pyarrow as pa
    import pyarrow.ipc

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(commit.columns)))
