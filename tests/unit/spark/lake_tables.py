"""The three kinds of tables, and their rows as several readers see them."""

from __future__ import annotations

import datetime
import uuid
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset
from deltalake import DeltaTable

from headwater.spark.tables.delta import DeltaLake
from headwater.spark.tables.file_writer import FilesWriter
from headwater.spark.tables.iceberg import IcebergLake
from headwater.spark.tables.location import TableLocation
from headwater.spark.tables.parquet import ParquetLake
from headwater.spark.tables.table import Landing, Table, WrittenFile

FORMATS: dict[str, Callable[[TableLocation], Table]] = {
    "delta": DeltaLake,
    "iceberg": IcebergLake,
    "parquet": ParquetLake,
}
DAY = datetime.date(2026, 1, 31)
COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("seq", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("amount", pa.int32()),
        ("date", pa.date32()),
    ]
)
Row = dict[str, Any]


def landing(batch: int = 0, app: str = "app", checkpoint: str = "one", rules: str = "") -> Landing:
    return Landing(app, batch, checkpoint, rules)


def row(seq: int, **more: Any) -> Row:
    ts = datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC) + datetime.timedelta(seconds=seq)
    return {"topic": "orders", "seq": seq, "ts": ts, "amount": seq, "date": DAY, **more}


def write_files(
    table: Table,
    landing: Landing,
    rows: Sequence[Row],
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    name: str = "run-0",
) -> list[WrittenFile]:
    """What a task does."""
    writer = FilesWriter(table.layout(landing, partition_by), schema, name)
    if rows:
        writer.write(pa.Table.from_pylist(list(rows), schema=schema))
    return writer.finish()


def land(
    table: Table,
    landing: Landing,
    rows: Sequence[Row],
    schema: pa.Schema = COLUMNS,
    partition_by: Sequence[str] = (),
) -> None:
    """One batch, from its columns to its commit."""
    schema = table.evolve(schema, partition_by)
    name = uuid.uuid4().hex
    table.commit(landing, write_files(table, landing, rows, schema, partition_by, name))


def rows_by_own_reader(table: Table) -> list[Row]:
    """By the library of the format, or by the commit log for plain Parquet."""
    schema = table.schema()
    assert schema is not None
    return ordered(table.read(schema.names).to_pylist())


def committed_dataset(table: Table) -> Any:
    partitioning = pyarrow.dataset.partitioning(flavor="hive")
    schema = table.schema()
    return pyarrow.dataset.dataset(
        table.files(),
        schema=schema,
        format="parquet",
        partitioning=partitioning,
        partition_base_dir=table.location.uri,
    )


def rows_by_duckdb(table: Table) -> list[Row]:
    """Without its extensions, which are not installed here: over Arrow, or over the files."""
    with duckdb.connect() as database:
        database.sql("set timezone = 'UTC'")
        source: Any
        if isinstance(table, DeltaLake):
            source = DeltaTable(table.location.uri).to_pyarrow_dataset()
        elif isinstance(table, IcebergLake):
            opened = table._open()
            assert opened is not None
            source = opened.scan().to_arrow()
        else:
            source = committed_dataset(table)
        database.register("rows", source)
        return ordered(database.sql("select * from rows").arrow().read_all().to_pylist())


def rows_by_polars(table: Table) -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(table, DeltaLake):
            frame = polars.read_delta(table.location.uri)
        elif isinstance(table, IcebergLake):
            frame = polars.scan_iceberg(table.metadata_location()).collect()
        else:
            frame = polars.DataFrame(polars.from_arrow(committed_dataset(table).to_table()))
    return ordered(frame.to_dicts())


READERS: dict[str, Callable[[Table], list[Row]]] = {
    "own": rows_by_own_reader,
    "duckdb": rows_by_duckdb,
    "polars": rows_by_polars,
}


def ordered(rows: Sequence[Row]) -> list[Row]:
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return sorted(plain, key=lambda row: (str(row.get("topic")), row.get("seq") or 0))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    return value


def table_at(kind: str, directory: Path) -> Table:
    return FORMATS[kind](TableLocation.of(str(directory / kind)))
