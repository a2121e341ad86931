"""`headwater bridge`: every record once and in order, whenever it is killed."""

from __future__ import annotations

import os
import signal
import threading
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin._config import ConfigResource
from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.client.bridge.bridge import Bridge
from headwater.client.bridge.clusters import AwayError
from headwater.client.bridge.settings import BridgeProgress, BridgeSettings
from headwater.client.bridge.settings import Cluster as Address
from headwater.client.bridge.statement import BridgeStoppedError
from tests.kafka.bridges import Cluster, bridge, command, length, running_bridge
from tests.kafka.broker import Broker, running_broker
from tests.server.running_server import eventually

pytestmark = pytest.mark.e2e


def test_topics_are_copied_record_by_record_and_later_goes_on_where_it_ended(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name, 3)
    source.write(name, 0, 3_000, 3)
    done = bridge(source, dest, name, name=name)
    assert done == BridgeProgress(3_000, 0, {f"{name}/{n}": 0 for n in range(3)})
    source.write(name, 3_000, 10, 3)
    assert bridge(source, dest, name, name=name).copied == 10
    assert bridge(source, dest, name, name=name).copied == 0
    for partition in range(3):
        assert dest.read(name, partition) == source.read(name, partition)


@pytest.mark.timeout(180)
def test_a_bridge_killed_at_any_time_leaves_no_gap_and_no_copy_twice(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name, 2)
    source.write(name, 0, 40_000, 2)
    for round_number in range(2):
        with running_bridge(source, dest, name, "--name", name) as process:
            before = length(dest, name)
            eventually(lambda before=before: length(dest, name) > before)  # type: ignore[misc]
            process.send_signal(signal.SIGKILL)
        source.write(name, 40_000 + round_number * 2_000, 2_000, 2)
    bridge(source, dest, name, name=name)
    for partition in range(2):
        assert dest.read(name, partition) == source.read(name, partition)


def test_a_log_topic_with_gaps_is_copied_as_it_is_read(
    broker: Broker, source: Cluster, dest: Cluster, name: str
) -> None:
    import headwater

    with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
        client.append(name, [{"data": n, "tag": f"t{n % 2}"} for n in range(100)])
        client.delete(name, match="t1")
        assert bridge(source, dest, name, name=name).copied == 50
        client.append(name, {"data": 100, "tag": "t0"})
        client.append(name, {"data": 101, "tag": "t1"})
        client.delete(name, match="t1")
        assert bridge(source, dest, name, name=name).copied == 1
    values = [value for _, value, _, _ in dest.read(name)]
    assert values == [b"%d" % n for n in range(0, 101, 2)]


def test_a_destination_that_somebody_else_writes_to_stops_the_bridge(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name)
    source.write(name, 0, 10)
    bridge(source, dest, name, name=name)
    dest.write(name, 500, 1)
    source.write(name, 10, 10)
    with pytest.raises(BridgeStoppedError, match="at 10 is no copy"):
        bridge(source, dest, name, name=name)
    assert len(dest.read(name)) == 11


def test_a_bridge_that_copies_other_topics_for_a_while_forgets_none_of_the_first(
    source: Cluster, dest: Cluster, name: str
) -> None:
    first, other = f"{name}.first", f"{name}.other"
    for topic in (first, other):
        source.make(topic)
        source.write(topic, 0, 10)
    assert bridge(source, dest, first, name=name).copied == 10
    assert bridge(source, dest, other, name=name).copied == 10
    source.write(first, 10, 5)
    assert bridge(source, dest, first, name=name).copied == 5
    assert dest.read(first) == source.read(first)


def test_positions_are_kept_for_ever_and_not_guessed_when_they_are_gone(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name)
    source.write(name, 0, 10)
    bridge(source, dest, name, name=name)
    positions = f"headwater-bridge.{name}"
    resource = ConfigResource(ConfigResource.Type.TOPIC, positions)
    told = dest.admin.describe_configs([resource])[resource].result(20)
    assert {each: told[each].value for each in ("retention.ms", "retention.bytes")} == {
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }
    assert not told["retention.ms"].is_default
    spot = TopicPartition(positions, 0, length(dest, positions, 1))
    dest.admin.delete_records([spot])[spot].result(20)
    with pytest.raises(BridgeStoppedError, match="it is unknown what was copied"):
        bridge(source, dest, name, name=name)
    assert len(dest.read(name)) == 10


def test_two_bridges_of_one_name_notice_each_other(
    source: Cluster, dest: Cluster, name: str
) -> None:
    first, other = f"{name}.first", f"{name}.other"
    for topic in (first, other):
        source.make(topic)
        source.write(topic, 0, 10)
    with running_bridge(source, dest, first, "--name", name) as process:
        eventually(lambda: length(dest, first, 1) == 10)
        bridge(source, dest, other, name=name)
        source.write(first, 10, 10)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "another bridge" in told


def test_another_source_is_noticed_before_anything_of_it_is_left_out(
    source: Cluster, dest: Cluster, name: str, tmp_path: Path
) -> None:
    source.make(name)
    source.write(name, 0, 10)
    bridge(source, dest, name, name=name)
    with running_broker(tmp_path / "third") as broker:
        third = Cluster(broker.bootstrap)
        third.make(name)
        third.write(name, 100, 20)
        with pytest.raises(BridgeStoppedError, match="is of another cluster"):
            bridge(third, dest, name, name=name)
    assert dest.read(name) == source.read(name)


def test_a_source_topic_that_was_made_anew_is_noticed_also_when_it_has_more_records(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name)
    source.write(name, 0, 10)
    bridge(source, dest, name, name=name)
    source.admin.delete_topics([name])[name].result(20)
    source.make(name)
    source.write(name, 100, 20)
    with pytest.raises(BridgeStoppedError, match="made anew"):
        bridge(source, dest, name, name=name)
    assert len(dest.read(name)) == 10


def test_a_source_that_moved_to_another_address_is_known_by_its_records(
    dest: Cluster, name: str, tmp_path: Path
) -> None:
    with running_broker(tmp_path / "moving") as broker:
        before = Cluster(broker.bootstrap)
        before.make(name, 2)
        before.write(name, 0, 10)
        assert bridge(before, dest, name, name=name).copied == 10
    with running_broker(tmp_path / "moving") as broker:
        after = Cluster(broker.bootstrap)
        assert after.address != before.address
        after.write(name, 10, 10, 2)
        assert bridge(after, dest, name, name=name).copied == 10
        assert dest.read(name) == after.read(name)


def test_records_that_were_there_before_the_bridge_stay_where_they_are(
    source: Cluster, dest: Cluster, name: str
) -> None:
    dest.make(name)
    dest.write(name, 900, 5)
    source.make(name)
    source.write(name, 0, 10)
    assert bridge(source, dest, name, name=name).copied == 10
    assert dest.read(name)[5:] == source.read(name)


def test_records_the_source_lost_are_told_and_skipped_only_on_demand(
    source: Cluster, dest: Cluster, name: str
) -> None:
    from confluent_kafka import TopicPartition

    source.make(name)
    source.write(name, 0, 10)
    bridge(source, dest, name, name=name)
    source.write(name, 10, 10)
    spot = TopicPartition(name, 0, 15)
    source.admin.delete_records([spot])[spot].result(20)
    with pytest.raises(BridgeStoppedError, match="its records from 10 on were deleted"):
        bridge(source, dest, name, name=name)
    assert bridge(source, dest, name, name=name, skip_lost=True).copied == 5
    assert [value for _, value, _, _ in dest.read(name)] == [
        b"value %d" % n for n in (*range(10), *range(15, 20))
    ]


def test_a_source_topic_that_is_deleted_meanwhile_is_told_and_the_others_go_on_without_it(
    source: Cluster, dest: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"{name}-other"
    for topic in (name, other):
        source.make(topic)
        source.write(topic, 0, 10)
    monkeypatch.setattr("headwater.client.bridge.bridge.SOURCE_CHECK_US", 50_000)
    told: list[BridgeProgress] = []

    def report(progress: BridgeProgress) -> None:
        if not told and progress.copied == 20:
            told.append(progress)
            source.admin.delete_topics([name])[name].result(20)

    settings = BridgeSettings(Address(source.address), Address(dest.address), (name, other), name)
    with pytest.raises(BridgeStoppedError, match=f"has no topic '{name}' any more"):
        Bridge(settings, threading.Event(), report).run()
    assert len(dest.read(name)) == 10
    source.write(other, 10, 5)
    assert bridge(source, dest, other, name=name).copied == 5


def test_a_source_that_does_not_answer_for_a_while_has_not_lost_its_topics(
    source: Cluster, dest: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.make(name)
    source.write(name, 0, 10)
    monkeypatch.setattr("headwater.client.bridge.bridge.SOURCE_CHECK_US", 0)
    stop, looks = threading.Event(), list[float]()
    settings = BridgeSettings(Address(source.address), Address(dest.address), (name,), name)
    running = Bridge(settings, stop)
    ask = running._source.topic_ids

    def silent(topics: Iterable[str], timeout_s: float = 30.0) -> dict[str, str | None]:
        if timeout_s == 30.0 or not length(dest, name, 1):  # at the start
            return ask(topics, timeout_s)
        looks.append(timeout_s)
        if len(looks) == 5:
            stop.set()
        raise AwayError("it does not answer")

    monkeypatch.setattr(running._source, "topic_ids", silent)
    assert running.run().copied == 10
    assert len(looks) == 5


def test_an_interrupt_ends_it_cleanly_and_metrics_tell_the_lag(
    source: Cluster, dest: Cluster, name: str, tmp_path: Path
) -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source.make(name)
    source.write(name, 0, 100)
    with running_bridge(source, dest, name, "--name", name, "--metrics-port", str(port)) as process:

        def metrics() -> str:
            try:
                url = f"http://127.0.0.1:{port}/metrics"
                with urllib.request.urlopen(url, timeout=5) as answer:
                    return str(answer.read().decode())
            except OSError:
                return ""

        eventually(lambda: "headwater_bridge_records_copied_total 100.0" in metrics())
        wanted = f'headwater_bridge_lag{{partition="0",topic="{name}"}} 0.0'
        assert wanted in metrics()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert bridge(source, dest, name, name=name).copied == 0


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--topics", "no-such-topic"], 2, "has no topic 'no-such-topic'"),
        (["--topics", "a,a"], 2, "each once"),
        (["--from", "http://localhost"], 2, "no address of a cluster"),
        (["--from", "kafka://user:secret@"], 2, "host:port"),
        (["--from-config", "/nowhere/at/all"], 2, "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    source: Cluster, dest: Cluster, more: list[str], code: int, said: str
) -> None:
    words = command(source, dest, "whatever", *more)[3:]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == code, ran.stderr
    assert said in ran.stderr
    assert "secret" not in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.skipif("KAFKA_HOME" not in os.environ, reason="KAFKA_HOME names no Apache Kafka")
def test_topics_go_to_apache_kafka_and_come_back(
    source: Cluster, dest: Cluster, name: str, tmp_path: Path
) -> None:
    from bench.kafka.brokers import ApacheKafka

    source.make(name, 2)
    source.write(name, 0, 20_000, 2)
    apache = ApacheKafka(tmp_path)
    with apache:
        middle = Cluster(apache.bootstrap)
        with running_bridge(source, middle, name) as process:
            eventually(lambda: length(middle, name) > 0)
            process.send_signal(signal.SIGKILL)
        bridge(source, middle, name, name="default")
        bridge(middle, dest, name, name=name)
        for partition in range(2):
            assert middle.read(name, partition) == source.read(name, partition)
            assert dest.read(name, partition) == source.read(name, partition)
