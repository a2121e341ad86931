"""A Kafka topic as an origin of a backfill: `kafka://host:port/topic`.

The driver asks once where each partition begins and ends; tasks read those ranges with librdkafka,
so the rows are the same however often they are read. A record of Kafka becomes what it would be
through Headwater's own Kafka port. No connector for the JVM is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from headwater.client.bridge.addresses import Cluster
from headwater.core.errors import InvalidRequestError, RequestError
from headwater.format.frame import FrameFlag
from headwater.format.kafka.mapping import to_native

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMES: Final = ("kafka://", "kafkas://")
PIECE_RECORDS: Final = 500_000
"""So many records of a partition at most are one task's."""
_BATCH_ROWS: Final = 4_096
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
_ROWS_DDL: Final = (
    "data string, tag string, node string, meta string, `$file` string, `$block` bigint, "
    "`$unfit` string"
)
_HAS_TAG: Final = int(FrameFlag.HAS_TAG)
_HAS_NODE: Final = int(FrameFlag.HAS_NODE)


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """A topic of a cluster, and where its partitions end for us, if that was said."""

    address: str
    topic: str
    ends: tuple[int, ...]

    def __str__(self) -> str:
        """Without what is secret."""
        return f"{Cluster(self.address)}/{self.topic}"


def kafka_place(location: str) -> KafkaPlace:
    """`kafka://[user:password@]host:port[,host:port]/topic[?ends=100,90]`."""
    place, _, query = location.partition("?")
    address, _, topic = place.rpartition("/")
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
    return KafkaPlace(address, topic, tuple(map(int, ends)))


class Piece(msgspec.Struct, frozen=True):
    """What one task reads of one partition."""

    address: str
    topic: str
    partition: int
    first: int
    end: int
    file: str


def plan_kafka_origin(place: KafkaPlace) -> list[Piece]:
    """Every record there is now, or up to the ends that were named."""
    from headwater.client.bridge.clusters import ClusterReader

    reading = ClusterReader(Cluster(place.address))
    try:
        there = reading.partitions().get(place.topic)
        if not there:
            raise RequestError(f"there is no topic {place.topic!r} in {Cluster(place.address)}")
        if place.ends and len(place.ends) != len(there):
            raise RequestError(f"{place} has {len(there)} partitions, and {len(place.ends)} ends")
        marks = [reading.watermarks(place.topic, partition) for partition in there]
    finally:
        reading.close()
    pieces = []
    for partition, mark in zip(there, marks, strict=True):
        end = place.ends[partition] if place.ends else mark.high
        if end > mark.high:
            raise RequestError(f"{place}/{partition} ends at {mark.high}, before {end}")
        pieces += [
            Piece(
                place.address,
                place.topic,
                partition,
                first,
                min(first + PIECE_RECORDS, end),
                f"{place}/{partition}",
            )
            for first in range(mark.low, end, PIECE_RECORDS)
        ]
    return pieces


def kafka_rows(spark: SparkSession, location: str) -> DataFrame:
    """The rows of a backfill. Nothing is read before somebody asks for them."""
    pieces = [
        (msgspec.json.encode(each).decode(),) for each in plan_kafka_origin(kafka_place(location))
    ]
    source = spark.sparkContext.parallelize(pieces, max(len(pieces), 1))
    return spark.createDataFrame(source, "piece string").mapInArrow(_read, _ROWS_DDL)


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for text in batch.column(0).to_pylist():
            yield from read_piece(msgspec.json.decode(text, type=Piece))


def read_piece(piece: Piece) -> Iterator[pa.RecordBatch]:
    """In a task: one range of a partition. The rows stand in its order."""
    from headwater.client.bridge.records import read_range

    held: list[tuple[Any, ...]] = []
    cluster = Cluster(piece.address)
    for message in read_range(cluster, piece.topic, piece.partition, piece.first, piece.end):
        held.append(_row(piece, message))
        if len(held) == _BATCH_ROWS:
            yield _batch(held)
            held = []
    if held:
        yield _batch(held)


def _row(piece: Piece, message: Any) -> tuple[Any, ...]:
    native = to_native(message.key(), message.value(), message.headers() or ())
    return (
        native.data.decode(),
        native.tag.decode() if native.flags & _HAS_TAG else None,
        native.node.decode() if native.flags & _HAS_NODE else None,
        None if native.meta is None else native.meta.decode(),
        piece.file,
        message.offset(),
        None,
    )


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), _ROWS, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ROWS)
