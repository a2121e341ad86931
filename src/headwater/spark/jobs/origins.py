"""Where a backfill takes its rows from, each brought into the form that the sink takes.

A line of JSON is a record as it stands: its text is never parsed and printed again. A row of any
other origin becomes a JSON object of its columns, unless one column holds the payload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from headwater.core.errors import RequestError
from headwater.spark.sessions.session import INSTALL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

DATA: Final = "data"
TAG: Final = "tag"
NODE: Final = "node"
FILE: Final = "$file"
"""The file a row is from; like the next two it is gone before the sink sees the row."""
BLOCK: Final = "$block"
"""Where the part of the file begins that was read together."""
UNFIT: Final = "$unfit"
"""Why a row is none, as its reader says."""
CARRIED: Final = (FILE, BLOCK, UNFIT)

# What a reader of Delta's files must know to read them rightly, and Spark alone does not.
_DELTA_FEATURES_REFUSED: Final = frozenset(("deletionVectors", "columnMapping"))


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What to read, and which of it becomes what."""

    format: str
    location: str
    fields: str | None = None
    """Names and types of the columns of a CSV file, as DDL."""
    data: str | None = None
    """The column with the payload as JSON text; without it all columns are the payload."""
    tag: str | None = None
    node: str | None = None


def read_origin(spark: SparkSession, origin: Origin) -> DataFrame:
    """The rows, with a column for the file each is from and one for what is wrong with it."""
    try:
        read = READERS[origin.format]
    except KeyError:
        known = ", ".join(READERS)
        raise RequestError(f"a backfill reads {known}, not {origin.format!r}") from None
    if origin.fields is not None and origin.format != "csv":
        raise RequestError(f"fields are for csv; {origin.format} knows its own columns")
    return _named(read(spark, origin), origin)


def _json(spark: SparkSession, origin: Origin) -> DataFrame:
    from pyspark.sql import functions as f

    if origin.data is not None:
        raise RequestError("a line of JSON is the payload; there is no column to name")
    lines = spark.read.option("lineSep", "\n").text(origin.location)
    rows = lines.select(
        f.col("value").alias(DATA),
        *_picked(origin, lambda name: f.get_json_object("value", f"$.{name}")),
        *_carried(f.lit(None)),
    )
    return rows.where(f.trim(DATA) != "")


def _csv(spark: SparkSession, origin: Origin) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    if origin.fields is None:
        # Texts, as they stand there: a guess at types makes 1234 of the code 01234.
        schema = spark.read.option("header", "true").csv(origin.location).schema
    else:
        schema = _columns(origin.fields)
    columns = schema.fieldNames()
    reader = spark.read.option("header", "true").option("enforceSchema", "false")
    reader = reader.option("columnNameOfCorruptRecord", UNFIT).option("mode", "PERMISSIVE")
    rows = reader.schema(schema.add(UNFIT, StringType())).csv(origin.location)
    wrong = f.when(
        f.col(f"`{UNFIT}`").isNotNull(), f.concat(f.lit("does not fit: "), f.col(f"`{UNFIT}`"))
    )
    return rows.select(
        *(f.col(f"`{name}`") for name in columns),
        *_carried(wrong),
    )


def _columns(ddl: str) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as error:
        raise RequestError(f"fields {ddl!r} are no DDL like 'user string, amount long'") from error
    if not isinstance(schema, StructType):
        raise RequestError(f"fields {ddl!r} have no names, as in 'user string, amount long'")
    return schema


def _parquet(spark: SparkSession, origin: Origin) -> DataFrame:
    return _from_files(parquet_table(spark, origin.location))


def _delta(spark: SparkSession, origin: Origin) -> DataFrame:
    return _from_files(delta_table(spark, origin.location))


def parquet_table(spark: SparkSession, location: str) -> DataFrame:
    return spark.read.parquet(location)


def delta_table(spark: SparkSession, location: str) -> DataFrame:
    """The files of the table's newest version, read by Spark's own Parquet."""
    from pyspark.sql.types import StructType

    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
    except ImportError as error:
        raise RequestError(f"Delta tables need deltalake: run `{INSTALL}`") from error
    try:
        table = DeltaTable(location)
    except TableNotFoundError as error:
        raise RequestError(f"there is no Delta table in {location}") from error
    features = set(table.protocol().reader_features or ()) & _DELTA_FEATURES_REFUSED
    if features:
        raise RequestError(
            f"the Delta table {location} uses {', '.join(sorted(features))}, which cannot "
            "be read here; rewrite it without, or export it to Parquet"
        )
    schema = StructType.fromJson(msgspec.json.decode(table.schema().to_json()))
    files = table.file_uris()
    if not files:
        raise RequestError(f"the Delta table {location} is empty")
    reader = spark.read.schema(schema).option("basePath", location)
    return reader.parquet(*files)


def _from_files(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return rows.select("*", *_carried(f.lit(None)))


def _carried(unfit: Column) -> list[Column]:
    from pyspark.sql import functions as f

    return [
        f.col("_metadata.file_path").alias(FILE),
        f.col("_metadata.file_block_start").alias(BLOCK),
        unfit.cast("string").alias(UNFIT),
    ]


def _kafka(spark: SparkSession, origin: Origin) -> DataFrame:
    from headwater.spark.jobs.kafka_origin import kafka_rows

    if origin.data is not None or origin.tag is not None or origin.node is not None:
        raise RequestError("a record of Kafka has its own key and value: name no columns")
    return kafka_rows(spark, origin.location)


READERS: Final[dict[str, Callable[[SparkSession, Origin], DataFrame]]] = {
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "delta": _delta,
    "kafka": _kafka,
}
_READY: Final = ("json", "kafka")
"""Their readers give columns the names that the sink knows."""


def _picked(origin: Origin, pick: Callable[[str], Column]) -> list[Column]:
    wanted = {TAG: origin.tag, NODE: origin.node}
    return [pick(name).cast("string").alias(word) for word, name in wanted.items() if name]


def _named(rows: DataFrame, origin: Origin) -> DataFrame:
    """Give columns the names the sink knows them by, or say which column is not there."""
    from pyspark.sql import functions as f

    if origin.format in _READY:
        return rows
    there = [name for name in rows.columns if name not in CARRIED]
    for name in (origin.data, origin.tag, origin.node):
        if name is not None and name not in there:
            raise RequestError(
                f"{origin.location} has no column {name!r}; it has {', '.join(there)}"
            )
    picked = _picked(origin, lambda name: f.col(f"`{name}`"))
    if origin.data is not None:
        payload = [f.col(f"`{origin.data}`").alias(DATA)]
    else:
        renamed = {word for word, name in ((TAG, origin.tag), (NODE, origin.node)) if name}
        payload = [f.col(f"`{name}`") for name in there if name not in renamed]
    return rows.select(*payload, *picked, *(f.col(f"`{name}`") for name in CARRIED))
