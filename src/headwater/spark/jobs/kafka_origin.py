"""A Kafka topic as an origin of a backfill: `kafka://host:port/topic`.

The driver reads once where each partition begins and ends; tasks read those ranges with librdkafka,
so the rows are the same however often they are read. A record of Kafka becomes what it would be
through Headwater's own Kafka port. No connector for the JVM is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from headwater.client.bridge.addresses import Cluster
from headwater.core.errors import InvalidRequestError, RequestError
from headwater.format.frame import FrameFlag
from headwater.format.kafka.mapping import to_native
from headwater.spark.jobs.job import read_items
from headwater.spark.runtime.arrow_schema import in_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
