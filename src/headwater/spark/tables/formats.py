"""Which kind of table, by name."""

from __future__ import annotations

from typing import Final

from headwater.core.errors import RequestError
from headwater.spark.tables.delta import DeltaLake
from headwater.spark.tables.iceberg import IcebergLake
from headwater.spark.tables.location import TableLocation
from headwater.spark.tables.parquet import ParquetLake
from headwater.spark.tables.table import Table

FORMATS: Final = ("delta", "iceberg", "parquet")


def open_table(
    kind: str, location: TableLocation, catalog: str | None = None, name: str | None = None
) -> Table:
    """A table that is there, or will be. `catalog` and `name` are for Iceberg."""
    if kind == "delta":
        return DeltaLake(location)
    if kind == "iceberg":
        return IcebergLake(location, catalog, name)
    if kind == "parquet":
        return ParquetLake(location)
    raise RequestError(f"a table is one of {', '.join(FORMATS)}, not {kind!r}")
