"""`df.writeStream.format("headwater-table")`: rows of any query in a table of the lake.

Delta, Iceberg or Parquet, without a connector for the JVM: tasks write Parquet files, and the
driver makes one commit for each batch, exactly once, as the job `lake` does. Columns that are new
are added to the table.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headwater.core.errors import RequestError
from headwater.spark.runtime.arrow_schema import to_arrow
from headwater.spark.runtime.task_context import micro_batch, task_context
from headwater.spark.sink.options import SPARKS_OWN
from headwater.spark.tables.formats import FORMATS, open_table
from headwater.spark.tables.location import TableLocation
from headwater.spark.tables.table import (
    AlreadyLandedError,
    Landing,
    OtherCheckpointError,
    Table,
    WrittenFile,
    check_landing,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT: Final = "headwater-table"
OPTIONS: Final = ("path", "table", "appId", "writeId", "partitionBy", "catalog", "name")


@dataclass(frozen=True, slots=True)
class TableOptions:
    path: str
    format: str
    app_id: str | None
    write_id: str | None
    partition_by: tuple[str, ...]
    catalog: str | None
    name: str | None

    def open(self) -> Table:
        return open_table(self.format, TableLocation.of(self.path), self.catalog, self.name)


def table_options(given: Mapping[str, str]) -> TableOptions:
    known = {option.lower() for option in OPTIONS} | SPARKS_OWN
    for option in given:
        if option.lower() not in known and not option.lower().startswith("spark."):
            raise RequestError(f"there is no option {option!r}; options are {', '.join(OPTIONS)}")
    if not given.get("path"):
        raise RequestError('say where the table is: option("path", "/lake/orders")')
    table_format = given.get("table", FORMATS[0])
    if table_format not in FORMATS:
        raise RequestError(f"option table is one of {', '.join(FORMATS)}, not {table_format!r}")
    names = [name.strip() for name in given.get("partitionBy", "").split(",")]
    return TableOptions(
        path=given["path"],
        format=table_format,
        app_id=given.get("appId"),
        write_id=given.get("writeId"),
        partition_by=tuple(name for name in names if name),
        catalog=given.get("catalog"),
        name=given.get("name"),
    )


class TableDataSource(DataSource):
    """Registered by `headwater.spark.session`. It only writes; tables have better readers."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return TableBatchWriter(_prepared(self.options, schema, overwrite=overwrite))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        return TableStreamWriter(_prepared(self.options, schema, overwrite=overwrite))


@dataclass(frozen=True, slots=True)
class Prepared:
    """The table is there with all its columns; what a task needs to write files for it."""

    options: TableOptions
    columns: bytes
    run: str


def _prepared(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Prepared:

    from headwater.spark.tables.columns import plain

    if overwrite:
        raise RequestError('a table is only appended to: write with mode("append")')
    options = table_options(given)
    wanted = plain(to_arrow(schema))
    columns = options.open().evolve(wanted, options.partition_by)
    return Prepared(options, bytes(columns.serialize()), uuid.uuid4().hex)


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    landing: Landing
    files: tuple[WrittenFile, ...]


class TableBatchWriter(DataSourceArrowWriter):
    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._app = prepared.options.write_id or prepared.run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._prepared, Landing(self._app, 0, self._app), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _commit(self._prepared, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _delete(self._prepared, messages)


class TableStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query, batch = micro_batch()
        landing = Landing(self._prepared.options.app_id or query, batch, query)
        return _write(self._prepared, landing, iterator)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - the name Spark calls it by
    ) -> None:
        _commit(self._prepared, messages)

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        _delete(self._prepared, messages)


def _write(
    prepared: Prepared, landing: Landing, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    import pyarrow as pa
    import pyarrow.ipc

    from headwater.spark.tables.file_writer import FilesWriter

    schema = pa.ipc.read_schema(pa.py_buffer(prepared.columns))
    context = task_context()
    name = f"{prepared.run}-{context.partitionId():05d}-{context.taskAttemptId()}"
    layout = prepared.options.open().layout(landing, prepared.options.partition_by)
    writer = FilesWriter(layout, schema, name)
    try:
        for batch in batches:
            if batch.num_rows:
                writer.write(_as_table(batch, schema))
        return FilesWritten(landing, tuple(writer.finish()))
    except BaseException:
        writer.abandon()
        raise


def _as_table(batch: pa.RecordBatch, schema: Any) -> Any:
    """The batch with the columns of the table: those it lacks are null."""
    import pyarrow as pa

    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _commit(prepared: Prepared, messages: Sequence[WriterCommitMessage | None]) -> None:
    written = [message for message in messages if isinstance(message, FilesWritten)]
    files = [file for message in written for file in message.files]
    if not files:
        return
    table, landing = prepared.options.open(), written[0].landing
    try:
        check_landing(table, landing)
        table.commit(landing, files)
    except AlreadyLandedError:
        _delete(prepared, messages)  # an earlier run got that far, with files of its own
    except OtherCheckpointError:
        _delete(prepared, messages)
        raise
    else:
        table.discard(landing, [file.path for file in files])


def _delete(prepared: Prepared, messages: Sequence[WriterCommitMessage | None]) -> None:
    location = TableLocation.of(prepared.options.path)
    for message in messages:
        if isinstance(message, FilesWritten):
            for file in message.files:
                location.delete(file.path)
