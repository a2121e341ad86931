"""The Kafka protocol, spoken by librdkafka, beside Apache Kafka in one run. `make bench-kafka`."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.embedded import told
from bench.kafka.brokers import HeadwaterBroker, new_topic
from bench.kafka.null_broker import NullBroker
from bench.kafka.sides import Side, sides
from bench.log_under_test import WrongResultError
from bench.measure_server import note
from bench.registry import KAFKA, Row, Run, benchmark
from bench.server.load import Load
from headwater.core.units import MIB

SIZES = (100, 1_000)
ROUNDS = 3
LIBRARY = f"librdkafka {confluent_kafka.libversion()[0]}"
RATE = 1_000.0
TARGETS = {"Apache Kafka": "1.0", "Apache Kafka, flush.interval.messages=1": "3"}
"""At 100 B, for producers."""
READING = {"Apache Kafka": "1.0"}
PARTITIONS = (1, 16, 64)
WAITING = ((16, 1), (64, 1), (64, 4))
"""Partitions, and producers that share them."""
READ_AT_ONCE = 1 * MIB


def row_of(name: str, loads: Sequence[Load], durability: str, size: int, shape: str = "") -> Row:
    rates = [load.rate for load in loads]
    rate = statistics.median(rates)
    conditions = {
        **told(durability),
        "payload": f"{size} B",
        "MB/s": f"{rate * size / 1e6:,.0f}",
        "server CPU": f"{statistics.median(load.cpu_us for load in loads):.2f} us each",
        "turns": f"{min(rates):,.0f} to {max(rates):,.0f}",
    }
    return Row(f"{name}, {size} B{shape}", rate, "messages/s", conditions)


def compared(rows: Sequence[Row], targets: dict[str, str]) -> list[Row]:
    """The last row beside each of the others; alone when there are none.

    A first row of a broker that stores nothing is no peer: it says how much the client and the
    machine leave to anybody, which is told with each ratio.
    """
    *peers, mine = rows
    limits = [peers.pop(0)] if peers and peers[0].name.startswith(NullBroker.name) else []
    found = []
    for peer in peers:
        row = mine.against(peer)
        for limit in limits:
            most = limit.against(peer).ratio
            row = _with(row, {"at most, with nothing stored": f"{most:.2f}"})
        target = targets.get(peer.name.rpartition(",")[0])
        found.append(_with(row, {"target": target}) if target else row)
    return [*limits, *peers, *(found or [mine])]


@benchmark("kafka-produce", "How many messages a second with acks=all, from one producer?", KAFKA)
def produced(run: Run) -> list[Row]:
    note(run, f"{LIBRARY}, linger.ms=5, one topic, one partition")
    rows: list[Row] = []
    with sides(run, limit=True) as contenders:
        for size in SIZES:
            count = run.size(1_000_000 if size == SIZES[0] else 300_000, 2_000)
            written: dict[str, list[Load]] = {side.name: [] for side in contenders}
            for _ in range(run.size(ROUNDS, 1)):
                for side in contenders:
                    topic = new_topic()
                    written[side.name].append(side.run(side.produce, topic, size, count))
                    if side.stores:  # it is there, once and in order
                        side.run(side.consume, topic, size, count)
            made = [row_of(s.name, written[s.name], s.durability, size) for s in contenders]
            rows += compared(made, TARGETS if size == SIZES[0] else {})
    return rows


@benchmark("kafka-partitions", "And when the messages are spread over partitions?", KAFKA)
def spread(run: Run) -> list[Row]:
    """Round robin: every partition gets every n-th message, in batches of its own."""
    note(run, f"{LIBRARY}, idempotent, linger.ms=5, one producer, one topic; over: partitions")
    count, rows = run.size(1_000_000, 2_000), []
    with sides(run) as contenders:
        for partitions in PARTITIONS:
            rows += _spread(run, contenders, "spread", count, partitions)
    return rows


@benchmark("kafka-waiting", "And when each message waits for the ack of the one before?", KAFKA)
def waited(run: Run) -> list[Row]:
    """Every partition has one message under way, so a batch is one message."""
    note(run, f"{LIBRARY}, linger.ms=0; over: partitions, by: producers")
    count, rows = run.size(20_000, 500), []
    with sides(run) as contenders:
        for partitions, producers in WAITING:
            rows += _spread(run, contenders, "waiting", count, partitions, producers)
    return rows


def _spread(
    run: Run, contenders: Sequence[Side], kind: str, count: int, partitions: int, *producers: int
) -> list[Row]:
    """Each in its turn writes to a new topic, and it is all there, once and in order.

    The first round does not count: Java has not compiled yet what this shape needs.
    """
    kafkas = [side for side in contenders if side.produce == "produce"]  # Redis has no partitions
    size, written = SIZES[0], {side.name: list[Load]() for side in kafkas}
    for _ in range(run.size(1 + ROUNDS, 1)):
        for side in kafkas:
            topic = made_topic(side, partitions)
            written[side.name].append(side.run(kind, topic, size, count, partitions, *producers))
            side.run(side.consume, topic, size, count, partitions)
    shape = f" over {partitions}" + "".join(f" by {each}" for each in producers)
    made = [
        row_of(side.name, written[side.name][-ROUNDS:], side.durability, size, shape)
        for side in kafkas
    ]
    return compared(made, TARGETS)


def made_topic(side: Side, partitions: int) -> str:
    topic = new_topic()
    admin = AdminClient({"bootstrap.servers": side.address})
    for made in admin.create_topics([NewTopic(topic, partitions)]).values():
        made.result(60)
    return topic


@benchmark("kafka-consume", "How many messages a second does one consumer read?", KAFKA)
def consumed(run: Run) -> list[Row]:
    note(run, f"{LIBRARY}, fetch.queue.backoff.ms=5")
    rows: list[Row] = []
    with sides(run) as contenders:
        for size in SIZES:
            count = run.size(2_000_000 if size == SIZES[0] else 500_000, 2_000)
            topic = new_topic()
            for side in contenders:
                side.run(side.produce, topic, size, count)
            read: dict[str, list[Load]] = {side.name: [] for side in contenders}
            for _ in range(run.size(ROUNDS, 1)):
                for side in contenders:
                    read[side.name].append(side.run(side.consume, topic, size, count))
            made = [row_of(s.name, read[s.name], s.durability, size) for s in contenders]
            rows += compared(made, READING if size == SIZES[0] else {})
    return rows


@benchmark("kafka-latency", "How long does an ack take at a fixed rate, acks=all?", KAFKA)
def latencies(run: Run) -> list[Row]:
    with sides(run) as contenders:
        return [_latency(run, side) for side in contenders if side.produce == "produce"]


def _latency(run: Run, side: Side) -> Row:
    count = run.size(10_000, 200)
    load = side.run("latency", new_topic(), SIZES[0], count, RATE)
    conditions = told(side.durability, rate=f"{RATE:,.0f} a second", messages=count)
    conditions |= {"payload": f"{SIZES[0]} B", "p50": f"{load.p50_us:,.0f} us"}
    return Row(f"{side.name}, linger.ms=0", load.p99_us, "us p99", conditions)


@benchmark("kafka-file", "How fast are 1 KB messages consumed, against reading the file?", KAFKA)
def beside_the_file(run: Run) -> list[Row]:
    """Both from memory, and both from the disk: the server is started anew for that."""
    count, size = run.size(1_000_000, 2_000), SIZES[1]
    server = HeadwaterBroker(run.directory / "headwater")
    side, topic = Side("Headwater", server, "fsync"), new_topic()
    speeds: dict[str, list[float]] = {}
    busy: list[float] = []
    server.start()
    try:
        side.run("produce", topic, size, count)
        for _ in range(run.size(ROUNDS, 1)):
            for where in ("cached", "from the disk"):
                if where == "from the disk":
                    server.end()
                    _forget(server.log_files)
                file = _read_files(server.log_files)
                if where == "from the disk":
                    _forget(server.log_files)
                    server.start()
                load = side.run("consume", topic, size, count)
                consumer = count * size / 1e6 / load.elapsed_s
                busy.append(load.cpu_s / load.elapsed_s)
                speeds.setdefault(f"reading the .log file, {where}", []).append(file)
                speeds.setdefault(f"one consumer, {where}", []).append(consumer)
        stored = sum(path.stat().st_size for path in server.log_files)
    finally:
        server.end()
    conditions = {**told("fsync", messages=f"{count:,}"), "payload": f"{size} B"}
    conditions["file"] = f"{stored / 1e6:,.0f} MB"
    rows = [Row(n, statistics.median(each), "MB/s", conditions) for n, each in speeds.items()]
    told_too = {"target": "0.5", "server busy": f"{statistics.median(busy):.0%} of a core"}
    return [each for file, mine in zip(rows[::2], rows[1::2], strict=True)
            for each in (file, _with(mine.against(file), told_too))]  # fmt: skip


def _with(row: Row, more: dict[str, str]) -> Row:
    conditions = {**row.conditions, **more}
    return Row(row.name, row.value, row.unit, conditions, row.baseline, row.ratio)


def _forget(paths: Sequence[Path]) -> None:
    """Have the kernel drop what it holds of these files; nobody may have them mapped."""
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_files(paths: Sequence[Path]) -> float:
    """MB a second, as `read` gives them."""
    total = 0
    began = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(READ_AT_ONCE):
                total += len(piece)
    return total / 1e6 / (time.perf_counter() - began)


@benchmark("kafka-recovery", "How long does a restart take with 10 M records in the log?", KAFKA)
def recovery(run: Run) -> list[Row]:
    count = run.size(10_000_000, 5_000)
    server = HeadwaterBroker(run.directory / "headwater")
    topic, rows = new_topic(), []
    server.start()
    try:
        side = Side("Headwater", server, "fsync")
        for _ in range(10):
            side.run("produce", topic, SIZES[0], count // 10)
        for name, number in (
            ("after a clean stop", signal.SIGTERM),
            ("after kill -9", signal.SIGKILL),
        ):
            server.end(number)
            server.start()
            _check_end(server, topic, count)
            conditions = {**told("fsync", records=f"{count:,}"), "payload": f"{SIZES[0]} B"}
            rows.append(Row(f"start to ready, {name}", server.started_s, "s", conditions))
    finally:
        server.end()
    return rows


def _check_end(server: HeadwaterBroker, topic: str, count: int) -> None:
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "bench"}
    consumer = confluent_kafka.Consumer(settings)
    spot = confluent_kafka.TopicPartition(topic, 0)
    found = consumer.get_watermark_offsets(spot, timeout=30)
    consumer.close()
    if found != (0, count):
        raise WrongResultError(f"the log has {found} after a restart, not {count}")


@benchmark("kafka-topics", "What do 100,000 topics cost?", KAFKA)
def many_topics(run: Run) -> list[Row]:
    count, at_once = run.size(100_000, 200), run.size(1_000, 100)
    with HeadwaterBroker(run.directory / "headwater") as server:
        assert isinstance(server, HeadwaterBroker)
        before = server.memory_bytes()
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        began = time.perf_counter()
        for start in range(0, count, at_once):
            names = [f"topic-{number:06}" for number in range(start, start + at_once)]
            for made in admin.create_topics([NewTopic(name, 1) for name in names]).values():
                made.result(60)
        making_s = time.perf_counter() - began
        if len(admin.list_topics(timeout=60).topics) != count:
            raise WrongResultError("not every topic is there")
        held = server.memory_bytes() - before
        files = sum(len(names) for _, _, names in os.walk(server.directory / "data" / "kafka"))
    conditions = told("fsync", topics=f"{count:,}", files=files)
    conditions["payload"] = "none"
    return [
        Row("memory of a topic", held / count, "bytes", conditions),
        Row("topics made", count / making_s, "topics/s", {**conditions, "a request": str(at_once)}),
    ]
