"""Where a backfill takes its rows from, each brought into the form that the sink takes.

A line of JSON is a record as it stands: its text is never parsed and printed again. A row of any
other origin becomes a JSON object of its columns, unless one column holds the payload.

Of a Kafka topic, `kafka://host:port/topic`, the driver reads once where each partition begins and
ends; tasks read those ranges with librdkafka, so the rows are the same however often they are read.
A record of Kafka becomes what it would be through Headwater's own Kafka port. No connector for the
JVM is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from headwater.client.bridge.settings import Cluster
from headwater.core.errors import InvalidRequestError, RequestError
from headwater.format.frame import FrameFlag
from headwater.format.kafka.mapping import to_native
from headwater.spark.jobs.job import read_items
from headwater.spark.runtime.arrow_schema import in_batches
from headwater.spark.sessions.session import INSTALL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

SCHEMES: Final = ("kafka://", "kafkas://")
RANGE_RECORDS: Final = 500_000
"""So many records of a partition at most are one task's."""
_ENDS: Final = "ends="
_ROWS: Final = pa.schema(
    [
        ("data", pa.string()),
        ("tag", pa.string()),
        ("node", pa.string()),
        ("meta", pa.string()),
        ("$file", pa.string()),
        ("$block", pa.int64()),
        ("$unfit", pa.string()),
    ]
)
_HAS_TAG: Final = int(FrameFlag.HAS_TAG)
_HAS_NODE: Final = int(FrameFlag.HAS_NODE)


@dataclass(frozen=True, slots=True)
class KafkaOrigin:
    """A topic of a cluster, and where its partitions end for us, if that was said."""

    address: str
    topic: str
    ends: tuple[int, ...]

    def __str__(self) -> str:
        """Without what is secret."""
        return f"{Cluster(self.address)}/{self.topic}"


def parse_kafka_origin(location: str) -> KafkaOrigin:
    """`kafka://[user:password@]host:port[,host:port]/topic[?ends=100,90]`."""
    origin, _, query = location.partition("?")
    address, _, topic = origin.rpartition("/")
    if not address.startswith(SCHEMES) or address in SCHEMES or not topic:
        shown = location.rpartition("@")[2]
        raise RequestError(f"{shown!r} is no Kafka topic; write kafka://host:port/topic")
    try:
        Cluster(address)
    except InvalidRequestError as error:
        raise RequestError(str(error)) from error
    ends = query.removeprefix(_ENDS).split(",") if query else []
    if query and (not query.startswith(_ENDS) or not all(end.isdigit() for end in ends)):
        raise RequestError(f"?{query} is not ?ends=100,90: the end of each partition, in order")
    return KafkaOrigin(address, topic, tuple(map(int, ends)))


class KafkaRange(msgspec.Struct, frozen=True):
    """What one task reads of one partition."""

    address: str
    topic: str
    partition: int
    first: int
    end: int
    file: str


def plan_kafka_origin(origin: KafkaOrigin) -> list[KafkaRange]:
    """Every record there is now, or up to the ends that were named."""
    from headwater.client.bridge.clusters import ClusterReader

    reader = ClusterReader(Cluster(origin.address))
    try:
        there = reader.partitions().get(origin.topic)
        if not there:
            raise RequestError(f"there is no topic {origin.topic!r} in {Cluster(origin.address)}")
        if origin.ends and len(origin.ends) != len(there):
            raise RequestError(f"{origin} has {len(there)} partitions, and {len(origin.ends)} ends")
        marks = [reader.watermarks(origin.topic, partition) for partition in there]
    finally:
        reader.close()
    ranges = []
    for partition, mark in zip(there, marks, strict=True):
        end = origin.ends[partition] if origin.ends else mark.high
        if end > mark.high:
            raise RequestError(f"{origin}/{partition} ends at {mark.high}, before {end}")
        ranges += [
            KafkaRange(
                origin.address,
                origin.topic,
                partition,
                first,
                min(first + RANGE_RECORDS, end),
                f"{origin}/{partition}",
            )
            for first in range(mark.low, end, RANGE_RECORDS)
        ]
    return ranges


def kafka_rows(spark: SparkSession, location: str) -> DataFrame:
    """The rows of a backfill. Nothing is read before a task reads a range."""
    ranges = plan_kafka_origin(parse_kafka_origin(location))
    return read_items(spark, ranges, read_kafka_range, _ROWS)


def read_kafka_range(range_: KafkaRange) -> Iterator[pa.RecordBatch]:
    """In a task: one range of a partition. The rows stand in its order."""
    from headwater.client.bridge.records import read_range

    spot = range_.topic, range_.partition, range_.first, range_.end
    messages = read_range(Cluster(range_.address), *spot)
    yield from in_batches((_row(range_, message) for message in messages), _ROWS)


def _row(range_: KafkaRange, message: Any) -> tuple[Any, ...]:
    native = to_native(message.key(), message.value(), message.headers() or ())
    return (
        native.data.decode(),
        native.tag.decode() if native.flags & _HAS_TAG else None,
        native.node.decode() if native.flags & _HAS_NODE else None,
        None if native.meta is None else native.meta.decode(),
        range_.file,
        message.offset(),
        None,
    )


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
    from headwater.spark.jobs.origins import kafka_rows

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
