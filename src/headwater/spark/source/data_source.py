"""`spark.read.format("headwater")`: topics of a data directory, a cold tier or a server as rows.

The options are in `headwater.spark.source.options`, the columns in `.schema`. A reader is planned
in a process of its own beside the driver and read by tasks; what both share is pickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from headwater.core.limits import INTEGER_MAX
from headwater.spark.runtime.filter_pushdown import pushes_safely
from headwater.spark.runtime.planner_processes import be_polite
from headwater.spark.source.filters import Filters, push
from headwater.spark.source.options import SourceOptions, source_options
from headwater.spark.source.query_plan import batch_slices, location_of, shared_out
from headwater.spark.source.schema import ENVELOPE_NAMES, chosen_columns, full_columns
from headwater.spark.source.task_reader import SlicePartition, TaskReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "headwater"
be_polite()


class HeadwaterDataSource(DataSource):
    """Registered by `headwater.spark.session` and `headwater.spark.register`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return full_columns(source_options(self.options)).schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(source_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from headwater.spark.source.stream_reader import StreamReader

        return StreamReader(source_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headwater.spark.sink.data_writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from headwater.spark.sink.data_writer import stream_writer

        return stream_writer(self.options, schema, overwrite)


class PushingDataSource(HeadwaterDataSource):
    """The same for sessions in which filters can be pushed without harm; see `apart`."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushingReader(source_options(self.options), schema)


def source_class(spark: SparkSession) -> type[HeadwaterDataSource]:
    """What to register in this session as the format "headwater"."""
    return PushingDataSource if pushes_safely(spark) else HeadwaterDataSource


def time_filters(options: SourceOptions) -> Filters:
    """The options about time as bounds on rows: from the start on, up to before the end."""
    filters = Filters()
    filters.seq.narrow(1, INTEGER_MAX)
    end = None if options.ending_us is None else options.ending_us - 1
    filters.ts_us.narrow(options.starting_us, end)
    return filters


class BatchReader(DataSourceReader):
    """One batch query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = chosen_columns(options, schema)
        self._filters = time_filters(options)
        self._location = location_of(options)

    def partitions(self) -> list[InputPartition]:
        slices = self._location.now(
            lambda snapshot: batch_slices(snapshot, self._options, self._filters)
        )
        return [SlicePartition(group) for group in shared_out(slices, self._options)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        task = TaskReader(self._location, self._options, self._columns, self._filters)
        return task.read(partition)


class PushingReader(BatchReader):
    """One batch query that takes filters over from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        return push(filters, ENVELOPE_NAMES.intersection(self._columns.schema.names), self._filters)
