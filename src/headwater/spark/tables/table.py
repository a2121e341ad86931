"""What a table of the lake can do, whatever its format.

Executors write Parquet files; the driver makes them part of the table, one commit for each batch.
The commit says whose batch it is, so that the same batch is never part of the table twice:

- `app` names the writer, and goes up by one batch after the other;
- `checkpoint` is the id of the query whose checkpoint knows which records are in which batch. The
  same app with another checkpoint would number other records alike, so it is refused;
- `rules` stands for how records were judged, see the job `lake`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

import msgspec

from headwater.core.errors import RequestError, UnavailableError
from headwater.format.checksum import checksum64
from headwater.spark.tables.columns import check_partitions, merged
from headwater.spark.tables.location import TableLocation

BATCHES_PER_DIRECTORY: Final = 1_000
COMMIT_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class Landing:
    """Whose batch it is."""

    app: str
    batch: int
    checkpoint: str
    rules: str = ""


@dataclass(frozen=True, slots=True)
class Landed:
    """The last batch of an app that is part of a table, seen from a writer of that app."""

    batch: int
    same_checkpoint: bool
    same_rules: bool


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One Parquet file an executor has written."""

    path: str
    """Relative to the table."""
    rows: int
    bytes: int
    partition: dict[str, str | None] = field(default_factory=dict)
    """Values of partition columns, as text."""
    stats: str = "{}"
    """Counts, least and greatest values by column, as JSON in Delta's form."""


class Table(Protocol):
    """One table. All of it is called by the driver; `layout` is what executors are sent."""

    location: TableLocation

    def schema(self) -> Any | None:
        """The columns as Arrow; None as long as there is no table."""

    def landed(self, landing: Landing) -> Landed | None:
        """The last batch of this app that is part of the table, and whether it was ours."""

    def evolve(self, schema: Any, partition_by: Sequence[str]) -> Any:
        """Make the table, or give it the columns it lacks. Gives the columns it then has."""

    def commit(self, landing: Landing, files: Sequence[WrittenFile]) -> None:
        """Make the files part of the table, all or none. `AlreadyLandedError` when this batch is
        part of it: a run has committed it, and not with these files."""

    def layout(self, landing: Landing, partition_by: Sequence[str]) -> FileLayout:
        """Where and how executors write the files of a batch."""

    def clean(self, app: str, after: int) -> int:
        """Delete files of this writer's batches after that one, which no commit refers to."""

    def discard(self, landing: Landing, kept: Sequence[str]) -> int:
        """After a commit: delete other files of the same batch, of tasks that were given up."""

    def read(self, columns: Sequence[str]) -> Any:
        """These columns of all rows as an Arrow table, read right here: for small questions."""

    def files(self) -> list[str]:
        """Where the files of the table are, as paths or addresses."""


class FileLayout(msgspec.Struct, frozen=True):
    """How executors write files for a table."""

    location: str
    directory: str
    prefix: str
    """Every file's name begins so."""
    suffix: str
    """And ends so."""
    partition_by: tuple[str, ...]
    partition_folders: bool
    """Files lie in folders named after their partition, `date=2026-01-31`; else partition columns
    are columns of the files too."""


def layout_of(
    location: TableLocation,
    base: str,
    landing: Landing,
    partition_by: Sequence[str],
    folders: bool,
    suffix: str = ".parquet",
) -> FileLayout:
    """Files of a batch, in a directory of its own below `base`; no other app has their prefix."""
    return FileLayout(
        location=location.uri,
        directory=group_directory(base, landing),
        prefix=file_prefix(landing),
        suffix=suffix,
        partition_by=tuple(partition_by),
        partition_folders=folders,
    )


class AlreadyLandedError(RequestError):
    """The batch is part of the table already."""

    code = "already_landed"


class CommitConflictError(UnavailableError):
    """Others commit to the table so often that this commit never came through."""

    code = "commit_conflict"


class OtherCheckpointError(RequestError):
    """The app id was used with another checkpoint."""

    code = "other_checkpoint"


def check_landing(table: Table, landing: Landing) -> Landed | None:
    """What is there of this app. Refuses a writer whose numbers mean other records."""
    last = table.landed(landing)
    if last is not None and not last.same_checkpoint:
        raise OtherCheckpointError(
            f"the app id {landing.app!r} has written {table.location.uri} up to batch {last.batch} "
            "with another checkpoint: batches would be left out or doubled. Go on with that "
            "checkpoint; if it is lost, choose another app id and a start behind what the table "
            "has, see docs/spark.md"
        )
    return last


def app_directory(app: str) -> str:
    """An app id as a name for files: whatever is in it, it must need no escaping anywhere."""
    return f"{checksum64(app.encode()):016x}"


def group_directory(base: str, landing: Landing) -> str:
    """A thousand batches share a directory, so that neither files nor directories are many."""
    group = landing.batch // BATCHES_PER_DIRECTORY
    return f"{base}/{app_directory(landing.app)}/{group:09d}"


def leftovers(location: TableLocation, base: str, app: str, after: int) -> list[str]:
    """Files of batches that were never committed: left by runs that died."""
    own = f"{base}/{app_directory(app)}"
    first = (after + 1) // BATCHES_PER_DIRECTORY
    groups = [d for d in location.directories_in(own) if int(d.rpartition("/")[2]) >= first]
    names = [name for group in groups for name in location.files_under(group)]
    return [name for name in names if batch_of(name) > after]


def losers(location: TableLocation, base: str, landing: Landing, kept: Sequence[str]) -> list[str]:
    """Files of a committed batch that its commit does not name, and no other will."""
    names = location.files_under(group_directory(base, landing))
    others = (name for name in names if batch_of(name) == landing.batch)
    return [name for name in others if name not in set(kept)]


def file_prefix(landing: Landing) -> str:
    """What the names of a batch's files begin with; no other app has it."""
    return f"{landing.batch:012d}-{app_directory(landing.app)}-"


def batch_of(name: str) -> int:
    """The batch a file's name begins with."""
    return int(name.rpartition("/")[2].partition("-")[0])


DATA: Final = "data"


class SharedTable(ABC):
    """A table in a format of its own, which other programs commit to as well: Delta and Iceberg.

    A commit is prepared on the table as it is, and decided by the format's library. When another's
    commit came first, the table is opened again and the batch looked up again before the next try.
    """

    KIND: ClassVar[str]
    FOLDERS: ClassVar[bool]
    """Files lie in folders named after their partition."""

    def __init__(self, location: TableLocation) -> None:
        self.location = location

    @abstractmethod
    def _open(self) -> Any | None:
        """The table as it is now, in the library's form; None: there is none."""

    @abstractmethod
    def _create(self, schema: Any, partition_by: Sequence[str]) -> None:
        """Make the table, unless another writer does."""

    @abstractmethod
    def _alter(self, table: Any, there: Any, wanted: Any) -> bool:
        """Give it the columns wanted. False when the table must be read again."""

    @abstractmethod
    def _widens(self, there: Any, wanted: Any) -> bool:
        """A column of the first type can be given the second."""

    @abstractmethod
    def _columns(self, table: Any) -> Any:
        """Its columns as Arrow."""

    @abstractmethod
    def _partitioning(self, table: Any) -> list[str]:
        """The columns it is partitioned by."""

    @abstractmethod
    def _landed(self, table: Any, landing: Landing) -> Landed | None:
        """What is there of this app."""

    @abstractmethod
    def _append(self, table: Any, landing: Landing, files: Sequence[WrittenFile]) -> bool:
        """Commit the files once. False when another commit came first."""

    def schema(self) -> Any | None:
        table = self._open()
        return None if table is None else self._columns(table)

    def landed(self, landing: Landing) -> Landed | None:
        table = self._open()
        return None if table is None else self._landed(table, landing)

    def evolve(self, schema: Any, partition_by: Sequence[str]) -> Any:
        check_partitions(schema, partition_by)
        for _ in range(COMMIT_TRIES):
            table = self._open()
            if table is None:
                self._create(schema, partition_by)
                continue
            self._check_partitioning(table, partition_by)
            there = self._columns(table)
            wanted = merged(there, schema, self._widens, self.location.uri)
            if wanted.equals(there) or self._alter(table, there, wanted):
                return wanted
        raise CommitConflictError(f"{self.location.uri} changes all the time; try again")

    def commit(self, landing: Landing, files: Sequence[WrittenFile]) -> None:
        for _ in range(COMMIT_TRIES):
            table = self._open()
            if table is None:
                raise CommitConflictError(f"{self.location.uri} was deleted while it was written")
            last = self._landed(table, landing)
            if last is not None and last.batch >= landing.batch:
                raise AlreadyLandedError(f"batch {landing.batch} of {landing.app} is there already")
            if self._append(table, landing, files):
                return
        raise CommitConflictError(
            f"batch {landing.batch} could not be committed to {self.location.uri}: others commit "
            "all the time; try again"
        )

    def layout(self, landing: Landing, partition_by: Sequence[str]) -> FileLayout:
        return layout_of(self.location, DATA, landing, partition_by, self.FOLDERS)

    def clean(self, app: str, after: int) -> int:
        return sum(map(self.location.delete, leftovers(self.location, DATA, app, after)))

    def discard(self, landing: Landing, kept: Sequence[str]) -> int:
        return sum(map(self.location.delete, losers(self.location, DATA, landing, kept)))

    def _opened(self) -> Any:
        table = self._open()
        if table is None:
            raise RequestError(f"there is no {self.KIND} table at {self.location.uri}")
        return table

    def _check_partitioning(self, table: Any, partition_by: Sequence[str]) -> None:
        there = self._partitioning(table)
        if there != list(partition_by):
            raise RequestError(
                f"{self.location.uri} is partitioned by {', '.join(there) or 'nothing'}, not by "
                f"{', '.join(partition_by) or 'nothing'}: a table keeps its partitioning"
            )
