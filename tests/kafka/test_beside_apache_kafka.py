"""The same requests to Apache Kafka and to us, answered alike: whoever grows out of one machine
goes on with the clients they have. Runs where KAFKA_HOME names an installation."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from bench.kafka.brokers import ApacheKafka, missing
from headwater.format.kafka.records import NO_PRODUCER, BatchProducer, NewRecord, encode_batch
from headwater.wire.kafka.apis import ApiKey, ErrorCode
from tests.kafka.broker import running_broker
from tests.kafka.raw_kafka import RawKafka

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

READY_S: Final = 60.0
TOPIC, CONFIGS = 2, {"resource_type": 2, "resource_name": "orders"}
ROW_NAMES: Final = ("name", "topic", "index", "partition_index", "partition", "group_id")
COMPARED: Final = (
    "base_offset", "high_watermark", "log_start_offset", "offset", "leader_epoch", "end_offset",
    "low_watermark", "committed_offset", "metadata", "generation_id", "protocol_name",
    "group_state", "num_partitions", "replication_factor", "assignment",
)  # fmt: skip
NOT_READY: Final = {14, 15, 16}
"""What a coordinator says while it is loading, is not made yet, or is elsewhere."""


class Case(NamedTuple):
    api: ApiKey
    values: dict[str, Any]
    version: int | None = None


def batch(sequence: int | None = None, epoch: int = 0) -> bytes:
    now_ms = int(time.time() * 1_000)  # an old record would be deleted for its age
    records = [NewRecord(now_ms, None, value) for value in (b"a", b"b")]
    producer = NO_PRODUCER if sequence is None else BatchProducer(987_654, epoch, sequence)
    return encode_batch(records, producer=producer)


def cut_short() -> bytes:
    return batch()[:-3]


def wrong_crc() -> bytes:
    found = bytearray(batch())
    found[-1] ^= 1
    return bytes(found)


def create(name: str, partitions: int = 1, copies: int = 1, **more: Any) -> Case:
    row = {"name": name, "num_partitions": partitions, "replication_factor": copies, **more}
    return Case(ApiKey.CREATE_TOPICS, {"topics": [row], "timeout_ms": 10_000})


def produce(records: bytes, topic: str = "orders", partition: int = 0, acks: int = -1) -> Case:
    rows = [{"index": partition, "records": records}]
    values = {"acks": acks, "topic_data": [{"name": topic, "partition_data": rows}]}
    return Case(ApiKey.PRODUCE, {**values, "timeout_ms": 5_000})


def fetch(offset: int, topic: str = "orders", **more: int) -> Case:
    row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 2**20, **more}
    return Case(ApiKey.FETCH, {"topics": [{"topic": topic, "partitions": [row]}]}, 11)


def in_session(session_id: int, epoch: int) -> Case:
    values = {**fetch(0).values, "session_id": session_id, "session_epoch": epoch}
    return Case(ApiKey.FETCH, values, 11)


def offsets(timestamp: int, partition: int = 0, **more: int) -> Case:
    row = {"partition_index": partition, "timestamp": timestamp, **more}
    return Case(ApiKey.LIST_OFFSETS, {"topics": [{"name": "orders", "partitions": [row]}]})


def cut(offset: int, topic: str = "orders") -> Case:
    rows = [{"partition_index": 0, "offset": offset}]
    values = {"topics": [{"name": topic, "partitions": rows}], "timeout_ms": 5_000}
    return Case(ApiKey.DELETE_RECORDS, values)


def commit(group: str, offset: int, generation: int = -1, member: str = "", **more: Any) -> Case:
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m", **more}
    values = {"group_id": group, "generation_id_or_member_epoch": generation, "member_id": member}
    return Case(
        ApiKey.OFFSET_COMMIT, {**values, "topics": [{"name": "orders", "partitions": [row]}]}
    )


def join(group: str, version: int = 9, **more: Any) -> Case:
    values = {"group_id": group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    values |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"m"}]}
    return Case(ApiKey.JOIN_GROUP, {**values, **more}, version)


def change(api: ApiKey, *configs: tuple[str, str]) -> Case:
    rows = [{"name": name, "value": value} for name, value in configs]
    return Case(api, {"resources": [{**CONFIGS, "configs": rows}]})


def delete(*rows: dict[str, Any]) -> Case:
    return Case(ApiKey.DELETE_TOPICS, {"topics": list(rows), "timeout_ms": 10_000})


def grow(*counts: int, topic: str = "orders", placed: Any = None) -> Case:
    rows = [{"name": topic, "count": count, "assignments": placed} for count in counts]
    return Case(ApiKey.CREATE_PARTITIONS, {"topics": rows, "timeout_ms": 10_000})


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def forget(group: str, *topics: str) -> Case:
    rows = [{"name": each, "partitions": [{"partition_index": 0}]} for each in topics]
    return Case(ApiKey.OFFSET_DELETE, {"group_id": group, "topics": rows})


SETTINGS: Final = (
    ("retention.ms", "1_000"), ("retention.ms", " 500000000 "), ("retention.ms", "-2"),
    ("retention.bytes", "-5"), ("segment.bytes", "13"), ("max.message.bytes", "-1"),
    ("index.interval.bytes", "4096"), ("message.timestamp.after.max.ms", "100000000"),
    ("message.timestamp.before.max.ms", "100000000"), ("preallocate", "false"),
    ("message.timestamp.difference.max.ms", "100000000"), ("min.compaction.lag.ms", "0"),
    ("max.compaction.lag.ms", "0"), ("local.retention.ms", "-2"), ("segment.jitter.ms", "0"),
    ("segment.index.bytes", "1000000"), ("min.cleanable.dirty.ratio", "0.5"),
    ("min.cleanable.dirty.ratio", "1.5"), ("follower.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "all"), ("remote.storage.enable", "false"),
)  # fmt: skip
TOPICS: Final = (
    create("orders"), create("twice.no", 0), create("copies", 1, 2), create("bad/name"),
    create(""), create("x" * 250), create("many", 3), create("by-default", -1, -1),
    create("config", configs=[{"name": "no.such", "value": "1"}]),
    create("placed", -1, -1, assignments=[{"partition_index": 1, "broker_ids": [1]}]),
    grow(2, topic="many"), grow(3, topic="many"), grow(5, topic="many"), grow(3, topic="nope"),
    grow(6, 7, topic="many"), grow(7, topic="many", placed=[{"broker_ids": [1]}]),
    grow(6, topic="many", placed=[{"broker_ids": [5]}]),
    grow(6, topic="many", placed=[{"broker_ids": [1]}]),
    *(create(f"c-{at}", configs=[{"name": name, "value": value}])
      for at, (name, value) in enumerate(SETTINGS)),
    *(Case(ApiKey.METADATA, {"topics": [{"name": name}], "allow_auto_topic_creation": False}, 9)
      for name in ("orders", "nope", "no/pe")),
    change(ApiKey.ALTER_CONFIGS, ("retention.ms", "soon")),
    change(ApiKey.ALTER_CONFIGS, ("no.such", "1")),
    change(ApiKey.ALTER_CONFIGS, ("retention.ms", "86400000")),
    change(ApiKey.INCREMENTAL_ALTER_CONFIGS, ("retention.ms", "1"), ("retention.ms", "2")),
)  # fmt: skip
RECORDS: Final = (
    *(produce(batch(), acks=acks) for acks in (-1, 1, 2)),
    produce(batch(), topic="nope"), produce(batch(), partition=7), produce(batch(), partition=-1),
    produce(cut_short()), produce(wrong_crc()),
    *(produce(batch(sequence), "many") for sequence in (40, 40, 42, 49)),
    produce(batch(5, epoch=1), "many"), produce(batch(0, epoch=1), "many"),
    produce(batch(44), "many"),
    *(fetch(offset) for offset in (0, 1, 4, 5, -1)), fetch(0, "nope"),
    fetch(0, current_leader_epoch=3),
    *(offsets(timestamp) for timestamp in (-1, -2, -3, -4, -5, -6, -9, 0, 4_102_444_800_000)),
    in_session(0, 0), in_session(0, -1), in_session(0, 5), in_session(7, 1), in_session(7, -1),
    offsets(-1, partition=9), offsets(-1, current_leader_epoch=3),
    cut(2), cut(1), cut(99), cut(1, "nope"), fetch(0), offsets(0), cut(-1), offsets(-2), offsets(0),
)  # fmt: skip
GROUPS: Final = (
    Case(ApiKey.HEARTBEAT, {"group_id": "nope", "generation_id": 1, "member_id": "x"}),
    join("needs-an-id"), join("", 9), join("short", session_timeout_ms=1),
    join("no-protocols", protocols=[]), join("stranger", member_id="x"), join("one", 3),
    Case(ApiKey.HEARTBEAT, {"group_id": "one", "generation_id": 1, "member_id": "x"}),
    commit("one", 5), commit("one", 5, 1, "x"), commit("simple", 5), commit("new", 5, 4, "x"),
    commit("simple", 5, partition_index=9), commit("simple", 5, committed_metadata="x" * 5_000),
    *(Case(ApiKey.OFFSET_FETCH, {"group_id": group, "topics": None}, 7)
      for group in ("simple", "nope")),
    Case(ApiKey.DESCRIBE_GROUPS, {"groups": ["one", "simple", "nope"]}, 5),
    Case(ApiKey.DELETE_GROUPS, {"groups_names": ["one", "nope"]}),
    Case(ApiKey.OFFSET_DELETE, {"group_id": "simple", "topics": [
        {"name": "orders", "partitions": [{"partition_index": 0}, {"partition_index": 7}]}]}),
    Case(ApiKey.DELETE_GROUPS, {"groups_names": ["simple"]}),
    commit("reading", 5),
    join("reading", 3, protocols=[{"name": "range", "metadata": subscription("many")}]),
    forget("reading", "orders", "many"), forget("one", "orders"), forget("nope", "orders"),
    *(Case(ApiKey.LEAVE_GROUP, {"group_id": group, "members": []}) for group in ("one", "nope")),
)  # fmt: skip
LAST: Final = (
    delete({"name": "nope"}), delete({"name": None}), delete({"name": None, "topic_id": b"7" * 16}),
    delete({"name": "orders", "topic_id": b"7" * 16}), delete({"name": "orders"},
    {"name": "orders"}), delete({"name": "orders"}),
    delete({"name": "orders"}),
)  # fmt: skip


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RawKafka, RawKafka]]:
    why_not = missing()
    if why_not is not None:
        pytest.skip(why_not)
    directory: Path = tmp_path_factory.mktemp("both")
    kafka = ApacheKafka(directory / "kafka")
    with (
        kafka,
        running_broker(directory / "headwater") as ours,
        RawKafka(kafka.port) as theirs,
        RawKafka(ours.kafka_port) as speaker,
    ):
        wait_for_the_coordinator(theirs)
        yield theirs, speaker


def wait_for_the_coordinator(speaker: RawKafka) -> None:
    """Kafka makes a topic for offsets when somebody first asks, and loads it."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        speaker.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["nope"]})
        asked = {"group_id": "nope", "generation_id": 1, "member_id": "x"}
        if speaker.ask(ApiKey.HEARTBEAT, asked)["error_code"] not in NOT_READY:
            return
    raise AssertionError("Apache Kafka has no coordinator")


def told(values: Any, at: tuple[Any, ...] = ()) -> set[tuple[Any, ...]]:
    """What clients act on, each with its place. Of what failed only the error counts."""
    found: set[tuple[Any, ...]] = set()
    if isinstance(values, dict):
        at += tuple(values[name] for name in ROW_NAMES if name in values)
        if "error_code" in values:
            found.add((*at, ErrorCode(values["error_code"]).name))
        if not values.get("error_code"):
            found |= {(*at, name, values[name]) for name in COMPARED if name in values}
        for value in values.values():
            found |= told(value, at)
    elif isinstance(values, list):
        for value in values:
            found |= told(value, at)
    return found


@pytest.mark.parametrize("cases", [TOPICS, RECORDS, GROUPS, LAST], ids=["topics", "records",
                         "groups", "the end"])  # fmt: skip
def test_both_answer_the_same_requests_alike(
    both: tuple[RawKafka, RawKafka], cases: tuple[Case, ...]
) -> None:
    different = []
    for case in cases:
        theirs, ours = (told(speaker.ask(*case)) for speaker in both)
        if theirs != ours:
            different.append((case.api.name, case.values, theirs - ours, ours - theirs))
    assert not different
