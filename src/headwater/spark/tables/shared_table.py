"""A table in a format of its own, which other programs commit to as well: Delta and Iceberg.

A commit is prepared on the table as it is, and decided by the format's library. When another's
commit came first, the table is opened again and the batch looked up again before the next try.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from headwater.core.errors import RequestError
from headwater.spark.tables.columns import check_partitions, merged
from headwater.spark.tables.location import TableLocation
from headwater.spark.tables.table import (
    COMMIT_TRIES,
    AlreadyLandedError,
    CommitConflictError,
    Landed,
    Landing,
    WrittenFile,
    leftovers,
    losers,
)

DATA: Final = "data"


class SharedTable(ABC):
    """What both formats do of `Table`."""

    KIND: ClassVar[str]

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
