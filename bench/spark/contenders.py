"""Ways to read the same rows with Spark, each with the frames a careful user would ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.spark.data import FILES, TOPIC
from headwater.spark.source.data_source import BatchReader, HeadwaterDataSource
from headwater.spark.source.options import source_options

FIELDS = "id bigint, kind string, amount bigint, note string"
PAYLOAD = "struct<id: bigint, kind: string, amount: bigint, note: string>"
ENVELOPE = "topic string, seq long, ts timestamp, node string, tag string"


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to read. Frames are made anew for each query, as a script would."""

    name: str
    all_columns: Callable[[], DataFrame]
    tags: Callable[[], DataFrame]
    amounts: Callable[[], DataFrame]
    """One column `amount`."""
    is_slow: bool = False


class TupleReader(BatchReader):
    """The same batches, handed over row by row: what a source in plain Python does."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for batch in super().read(partition):
            columns = [column.to_pylist() for column in batch.columns]
            yield from zip(*columns, strict=True)


class TupleSource(HeadwaterDataSource):
    @classmethod
    def name(cls) -> str:
        return "headwater_tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(source_options(self.options), schema)


def headwater_frames(
    spark: SparkSession, directory: Path, name: str = "headwater", **options: str
) -> Contender:
    def load(schema: str | None = None) -> DataFrame:
        reader = spark.read.format(name).option("path", str(directory)).option("topic", TOPIC)
        for option, value in options.items():
            reader = reader.option(option, value)
        return (reader if schema is None else reader.schema(schema)).load()

    said = "".join(f", {option}={value}" for option, value in options.items())
    title = "headwater" if name == "headwater" else "headwater, tuples"
    return Contender(
        title + said,
        load,
        lambda: load("tag string"),
        lambda: load("amount long"),
        name != "headwater",
    )


def json_frames(spark: SparkSession, directory: Path) -> Contender:
    """Records as an export has them: the payload is an object inside its line."""

    def load(schema: str) -> DataFrame:
        return spark.read.schema(schema).json(str(directory))

    return Contender(
        "JSON",
        lambda: load(f"{ENVELOPE}, data {PAYLOAD}, meta string"),
        lambda: load("tag string"),
        lambda: load("data struct<amount: bigint>").selectExpr("data.amount as amount"),
    )


def parquet_frames(spark: SparkSession, directory: Path) -> Contender:
    """The source's own columns, payload as text."""

    def load() -> DataFrame:
        return spark.read.parquet(str(directory))

    return Contender(
        "Parquet",
        load,
        lambda: load().select("tag"),
        lambda: load().selectExpr("from_json(data, 'amount bigint').amount as amount"),
    )


def export(ours: Contender, json_directory: Path, parquet_directory: Path) -> None:
    """The same rows for the others, in as many files as they like to read."""
    rows = ours.all_columns().drop("gap").coalesce(FILES)
    rows.write.parquet(str(parquet_directory))
    nested = rows.selectExpr(
        "topic", "seq", "ts", "node", "tag", f"from_json(data, '{FIELDS}') as data", "meta"
    )
    nested.write.json(str(json_directory))
