"""The small job whose classes go into the class-data archive.

`python -m headwater.spark.sessions.archive_training FILE` does what pipeline jobs do: Parquet, a
shuffle, Python over Arrow, a source in Python, a micro-batch. The JVM writes the archive as it
ends, so this process waits for that end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from headwater.disk.cache import make_directories, remove_tree
from headwater.spark.sessions.class_archive import MAKE_WITHIN_S, options_to_write
from headwater.spark.sessions.java import find_java
from headwater.spark.sessions.session import DRIVER_JAVA_OPTIONS, start

ROWS = 1_000


class NumbersReader(DataSourceReader):
    """One Arrow batch."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays(
            [pa.array(range(ROWS), pa.int64()), pa.array(["{}"] * ROWS)], names=["id", "text"]
        )


class NumbersSource(DataSource):
    """The smallest source in Python."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "id long, text string"

    def reader(self, schema: Any) -> DataSourceReader:
        return NumbersReader()


def exercise(spark: SparkSession, work: PurePath) -> int:
    """A little of everything; returns how many rows came through."""
    spark.dataSource.register(NumbersSource)
    numbers = spark.read.format("numbers").load()
    changed = numbers.mapInArrow(lambda batches: batches, "id long, text string")
    grouped = changed.groupBy((changed.id % 7).alias("rest")).count().orderBy("rest")
    assert len(grouped.collect()) == 7
    path = str(work / "numbers")
    changed.write.parquet(path)
    rows: list[int] = []

    def count(batch: DataFrame, _batch_id: int) -> None:
        rows.append(batch.where("id >= 10").count())

    stream = spark.readStream.schema("id long, text string").parquet(path)
    query = stream.writeStream.foreachBatch(count).option("checkpointLocation", str(work / "log"))
    query.trigger(availableNow=True).start().awaitTermination()
    return sum(rows)


def main(archive: PurePath) -> None:
    work = archive.with_name(f"{archive.name}.work")
    make_directories(work)
    try:
        # The compiler that is quick to be done, because this is soon over.
        write = f"{options_to_write(find_java(), archive)} -XX:TieredStopAtLevel=1"
        spark = start("training", "local[2]", {DRIVER_JAVA_OPTIONS: write}, use_archive=False)
        assert exercise(spark, work) == ROWS - 10
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        spark.stop()
        machine = gateway.proc
        machine.stdin.close()  # the JVM takes this for the end of Python
        machine.wait(MAKE_WITHIN_S)
    finally:
        remove_tree(work)


if __name__ == "__main__":
    main(PurePath(sys.argv[1]))
