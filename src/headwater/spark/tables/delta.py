"""A Delta table, without a JVM: its log is written by `deltalake`.

A batch is one transaction with three application ids, `app`, `app@checkpoint` and
`app@checkpoint#rules`, all with the batch as their version. Delta keeps the last version of each
for as long as the table lives, and refuses a commit beside another of the same id, so that two
drivers cannot both commit a batch.

Columns that are new are added by a commit of their own, before the data. Delta without a JVM cannot
widen a column; values that need it are judged by the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.core.clock import Clock, SystemClock
from headwater.spark.tables.columns import VARIANT_TYPE, new_names, plain
from headwater.spark.tables.location import TableLocation
from headwater.spark.tables.table import (
    Landed,
    Landing,
    SharedTable,
    WrittenFile,
)


class DeltaLake(SharedTable):
    KIND = "Delta"
    FOLDERS = True
    """The log has the values; Polars takes them from the folders all the same."""

    def __init__(self, location: TableLocation, clock: Clock | None = None) -> None:
        super().__init__(location)
        self._clock = clock or SystemClock()

    def read(self, columns: Sequence[str]) -> Any:
        return self._opened().to_pyarrow_dataset().to_table(columns=list(columns))

    def files(self) -> list[str]:
        table = self._open()
        return [] if table is None else [str(uri) for uri in table.file_uris()]

    def _open(self) -> Any | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.location.uri)
        except TableNotFoundError:
            return None

    def _append(self, table: Any, landing: Landing, files: Sequence[WrittenFile]) -> bool:
        from deltalake import CommitProperties, PostCommitHookProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        now_ms = self._clock.wall_ms()
        actions = [
            AddAction(file.path, file.bytes, file.partition, now_ms, True, file.stats)
            for file in files
        ]
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(name, landing.batch) for name in _names(landing)],
                    custom_metadata={"headwater": f"batch {landing.batch} of {landing.app}"},
                    # A retry of its own would not check whether the commit is still wanted.
                    max_commit_retries=0,
                ),
                post_commithook_properties=PostCommitHookProperties(create_checkpoint=True),
            )
        except CommitFailedError:
            return False
        return True

    def _create(self, schema: Any, partition_by: Sequence[str]) -> None:
        from deltalake import Schema
        from deltalake.transaction import create_table_with_add_actions

        create_table_with_add_actions(
            self.location.uri,
            Schema([_delta_field(field) for field in schema]),
            [],
            mode="ignore",
            partition_by=list(partition_by),
        )

    def _alter(self, table: Any, there: Any, wanted: Any) -> bool:
        from deltalake.exceptions import CommitFailedError, TableNotFoundError

        added = new_names(there, wanted)
        try:
            if added:
                table.alter.add_columns([_delta_field(field) for field in added])
        except (CommitFailedError, TableNotFoundError):
            return False
        return not added

    def _widens(self, there: Any, wanted: Any) -> bool:
        return False

    def _columns(self, table: Any) -> Any:
        import pyarrow as pa

        return plain(pa.schema(table.schema().to_arrow()))

    def _partitioning(self, table: Any) -> list[str]:
        return list(table.metadata().partition_columns)

    def _landed(self, table: Any, landing: Landing) -> Landed | None:
        batch, ours, rules = (table.transaction_version(name) for name in _names(landing))
        if batch is None:
            return None
        return Landed(batch, same_checkpoint=ours == batch, same_rules=rules == batch)


def _names(landing: Landing) -> tuple[str, str, str]:
    ours = f"{landing.app}@{landing.checkpoint}"
    return landing.app, ours, f"{ours}#{landing.rules}"


def _delta_field(field: Any) -> Any:
    import pyarrow as pa
    from deltalake import Field, Schema, VariantType

    if field.type == VARIANT_TYPE:
        return Field(field.name, VariantType())
    return Schema.from_arrow(pa.schema([field])).fields[0]
