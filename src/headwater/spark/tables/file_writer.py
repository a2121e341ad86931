"""Parquet files, written by executors: rows cut by partition, in row groups of a decent size."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.core.units import MIB
from headwater.spark.tables.location import TableLocation
from headwater.spark.tables.table import FileLayout, WrittenFile

ROW_GROUP_BYTES: Final = 64 * MIB
FILE_BYTES: Final = 256 * MIB
"""Of Arrow; Parquet is a good deal smaller."""
BUFFERED_BYTES_MAX: Final = 256 * MIB
NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
_STATS_TEXT_MAX: Final = 32


class FilesWriter:
    """The files of one task for one table."""

    def __init__(self, layout: FileLayout, schema: Any, name: str) -> None:
        self._layout = layout
        self._location = TableLocation(layout.location)
        self._schema = schema
        self._name = name
        self._open: dict[tuple[Any, ...], PartitionFile] = {}
        self._done: list[WrittenFile] = []
        self._count = 0
        if not layout.partition_folders:
            self._inside = schema
        else:
            names = [name for name in schema.names if name not in layout.partition_by]
            self._inside = pa.schema([schema.field(name) for name in names])

    def write(self, rows: pa.Table) -> None:
        """Rows that have all columns of the table, in its types."""
        for key, part in self._parts(rows):
            file = self._open.get(key)
            if file is None:
                file = self._open[key] = self._begin(key)
            file.write(part.select(self._inside.names))
            if file.bytes >= FILE_BYTES:
                self._done.append(self._open.pop(key).finish())
        while sum(file.buffered for file in self._open.values()) > BUFFERED_BYTES_MAX:
            max(self._open.values(), key=lambda file: file.buffered).flush()

    def finish(self) -> list[WrittenFile]:
        self._done += [file.finish() for file in self._open.values()]
        self._open.clear()
        return self._done

    def abandon(self) -> None:
        """Close what is open and delete all of it, as far as that can be done."""
        for file in self._open.values():
            file.close()
        for name in [*(file.path for file in self._open.values()), *(f.path for f in self._done)]:
            self._location.delete(name)

    def _parts(self, rows: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
        by = self._layout.partition_by
        if not by:
            yield (), rows
            return
        # One pass over a combined code; most batches have one partition, then nothing is copied.
        keys = rows.select(list(by)).group_by(list(by)).aggregate([])
        if keys.num_rows == 1:
            yield tuple(keys.to_pylist()[0].values()), rows
            return
        for key in keys.to_pylist():
            mask = None
            for name, value in key.items():
                column = rows.column(name)
                same = pc.is_null(column) if value is None else pc.equal(column, value)
                mask = same if mask is None else pc.and_kleene(mask, same)
            yield tuple(key.values()), rows.filter(mask)

    def _begin(self, key: tuple[Any, ...]) -> PartitionFile:
        values = {
            name: partition_text(value)
            for name, value in zip(self._layout.partition_by, key, strict=True)
        }
        directory = self._layout.directory
        if self._layout.partition_folders:
            folders = [folder_name(name, value) for name, value in values.items()]
            directory = "/".join([directory, *folders])
        path = (
            f"{directory}/{self._layout.prefix}{self._name}-{self._count:04d}{self._layout.suffix}"
        )
        self._count += 1
        self._location.make_directories(directory)
        return PartitionFile(self._location, path, self._inside, values)


class PartitionFile:
    """One file under way."""

    def __init__(
        self, location: TableLocation, path: str, schema: Any, partition: dict[str, str | None]
    ) -> None:
        self.path = path
        self._location = location
        self._schema = schema
        self._partition = partition
        self._sink = location.filesystem.open_output_stream(location.full(path))
        self._metadata: list[Any] = []
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="zstd", metadata_collector=self._metadata
        )
        self._buffer: list[pa.Table] = []
        self.buffered = 0
        self.bytes = 0
        self._rows = 0

    def write(self, rows: pa.Table) -> None:
        self._buffer.append(rows)
        self.buffered += rows.nbytes
        self.bytes += rows.nbytes
        self._rows += rows.num_rows
        if self.buffered >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._buffer:
            rows = pa.concat_tables(self._buffer)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._buffer, self.buffered = [], 0

    def finish(self) -> WrittenFile:
        self.flush()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        self._location.sync(self.path)
        stats = delta_stats(self._metadata[0], self._schema)
        return WrittenFile(self.path, self._rows, size, self._partition, stats)

    def close(self) -> None:
        self._writer.close()
        self._sink.close()


def partition_text(value: Any) -> str | None:
    """A partition's value as Delta and folder names write it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return str(value)


def folder_name(name: str, value: str | None) -> str:
    shown = NULL_FOLDER if value is None else quote(value, safe="-_.")
    return f"{quote(name, safe='')}={shown}"


def delta_stats(metadata: Any, schema: Any) -> str:
    """Least and greatest values of plain columns, from the file's own footer, in Delta's form.

    Only what is exact is said: texts that Parquet may have cut are left out, and so are times that
    have parts of a millisecond, which Delta has no room for.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    flat = [name for name in schema.names if not pa.types.is_nested(schema.field(name).type)]
    for name in flat:
        stats = _column_stats(metadata, name)
        if stats is None:
            continue
        low, high, null_count = stats
        nulls[name] = null_count
        shown = _stats_value(low), _stats_value(high)
        if None not in shown:
            least[name], greatest[name] = shown
    return msgspec.json.encode(
        {
            "numRecords": metadata.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": nulls,
        }
    ).decode()


def _column_stats(metadata: Any, name: str) -> tuple[Any, Any, int] | None:
    lows, highs, nulls = [], [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        column = next(
            (c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == name),
            None,
        )
        stats = None if column is None else column.statistics
        if stats is None or not stats.has_null_count:
            return None
        nulls += stats.null_count
        if stats.has_min_max:
            lows.append(stats.min)
            highs.append(stats.max)
        elif stats.null_count != group.num_rows:
            return None, None, nulls  # there are values, and nothing is said of them
    return (min(lows), max(highs), nulls) if lows else (None, None, nulls)


def _stats_value(value: Any) -> Any:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= _STATS_TEXT_MAX else None
    if isinstance(value, datetime.datetime):
        if value.microsecond % 1_000 or value.tzinfo is None:
            return None
        utc = value.astimezone(datetime.UTC)
        return utc.strftime("%Y-%m-%dT%H:%M:%S.") + f"{utc.microsecond // 1_000:03d}Z"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return None


def rows_of(files: Iterable[WrittenFile]) -> int:
    return sum(file.rows for file in files)
