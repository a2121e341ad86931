"""`headwater bridge` when something is wrong around it: nothing is lost, doubled or endless."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

import headwater
from headwater.client.bridge.bridge import Bridge
from headwater.client.bridge.clusters import AwayError
from headwater.client.bridge.records import read_range
from headwater.client.bridge.settings import BridgeProgress, BridgeSettings
from headwater.client.bridge.settings import Cluster as Address
from headwater.client.bridge.statement import (
    BridgeStoppedError,
    Statement,
    decode_statement,
    encode_statement,
)
from headwater.core.errors import InvalidRequestError
from tests.kafka.bridges import Background, Cluster, bridge, length, running_bridge
from tests.kafka.broker import Broker, running_broker
from tests.server.running_server import eventually

pytestmark = pytest.mark.e2e
BRIDGE = "headwater.client.bridge.bridge"


class KilledError(Exception):
    """Takes the place of a kill: nothing more is said."""


def settings_of(source: Cluster, dest: Cluster, topic: str, name: str) -> BridgeSettings:
    return BridgeSettings(
        Address(source.address), Address(dest.address), (topic,), name, settle_s=0.2
    )


def forget(cluster: Cluster, topic: str, before: int) -> None:
    spot = TopicPartition(topic, 0, before)
    cluster.admin.delete_records([spot])[spot].result(20)


def values(cluster: Cluster, topic: str) -> list[Any]:
    return [value for _, value, _, _ in cluster.read(topic)]


def numbered(*numbers: int) -> list[bytes]:
    return [b"value %d" % number for number in numbers]


def last_statement(dest: Cluster, name: str) -> Statement:
    topic = f"headwater-bridge.{name}"
    end = length(dest, topic, 1)
    found = list(read_range(Address(dest.address), topic, 0, end - 1, end))
    return decode_statement(found[-1].value() or b"", topic)


# -- the source's topic is another one


def test_a_source_topic_made_anew_while_the_bridge_runs_stops_it_before_it_leaves_anything_out(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name)
    source.write(name, 0, 50)
    anew = list[BridgeProgress]()

    def report(progress: BridgeProgress) -> None:
        if not anew and progress.copied == 50:
            anew.append(progress)
            source.admin.delete_topics([name])[name].result(20)
            source.make(name)
            source.write(name, 1_000, 80)

    with pytest.raises(BridgeStoppedError, match="was made anew"):
        Bridge(settings_of(source, dest, name, name), threading.Event(), report).run()
    assert values(dest, name) == numbered(*range(50))
    assert last_statement(dest, name).is_clean
    with pytest.raises(BridgeStoppedError, match="was made anew"):
        bridge(source, dest, name, name=name)
    assert bridge(source, dest, name, name=f"{name}.again").copied == 80


def test_a_topic_made_anew_with_the_same_records_is_known_by_its_id(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name)
    source.write(name, 0, 10)
    bridge(source, dest, name, name=name)
    source.admin.delete_topics([name])[name].result(20)
    source.make(name)
    source.write(name, 0, 10)
    with pytest.raises(BridgeStoppedError, match="was made anew"):
        bridge(source, dest, name, name=name)


def test_a_statement_of_an_older_version_has_no_ids_and_is_completed(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name)
    source.write(name, 0, 10)
    bridge(source, dest, name, name=name)
    said = last_statement(dest, name)
    assert said.ids.keys() == {name}
    older = Statement(said.source, said.positions, is_clean=True)
    producer = Producer({"bootstrap.servers": dest.bootstrap})
    producer.produce(f"headwater-bridge.{name}", encode_statement(older))
    assert producer.flush(20) == 0
    source.write(name, 10, 5)
    assert bridge(source, dest, name, name=name).copied == 5
    assert last_statement(dest, name).ids == said.ids


# -- two bridges, one cluster


def test_of_two_bridges_with_one_name_the_later_one_goes_on_and_nothing_is_doubled(
    source: Cluster, dest: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{BRIDGE}.STATEMENT_US", 0)  # the first one has nothing more to state
    source.make(name)
    source.write(name, 0, 10)
    first = Background(settings_of(source, dest, name, name))
    eventually(lambda: first.copied == 10)
    second = Background(settings_of(source, dest, name, name))
    eventually(lambda: second.told is not None)
    source.write(name, 10, 10)
    first.wait()
    assert isinstance(first.error, BridgeStoppedError)
    assert "started after this one" in str(first.error)
    eventually(lambda: second.copied == 10)
    second.end()
    assert second.error is None
    source.write(name, 20, 1)
    assert bridge(source, dest, name, name=name).copied == 1
    assert values(dest, name) == numbered(*range(21))


def test_of_bridges_that_start_together_one_goes_on(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name)
    source.write(name, 0, 10)
    together = [Background(settings_of(source, dest, name, name)) for _ in range(3)]
    eventually(lambda: length(dest, name, 1) == 10)
    source.write(name, 10, 10)
    eventually(lambda: sum(each.is_running for each in together) == 1)
    eventually(lambda: length(dest, name, 1) == 20)
    for each in together:
        each.end()
    assert [each.error for each in together].count(None) == 1
    assert bridge(source, dest, name, name=name).copied == 0
    assert values(dest, name) == numbered(*range(20))


def test_a_bridge_that_lost_its_turn_says_nothing_more_when_it_is_ended(
    source: Cluster, dest: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{BRIDGE}.STATEMENT_US", 0)
    source.make(name)
    source.write(name, 0, 10)
    first = Background(settings_of(source, dest, name, name))
    eventually(lambda: first.copied == 10)
    second = Background(settings_of(source, dest, name, name))
    eventually(lambda: second.told is not None)
    first.end()
    assert "started after this one" in str(first.error)
    source.write(name, 10, 10)
    eventually(lambda: second.copied == 10)
    second.end()
    assert second.error is None


@pytest.mark.parametrize("is_log", [False, True])
def test_a_topic_is_not_copied_into_itself_whatever_the_cluster_is_called(
    broker: Broker, source: Cluster, name: str, is_log: bool
) -> None:
    if is_log:
        with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
            client.append(name, [{"data": n} for n in range(10)])
    else:
        source.make(name)
        source.write(name, 0, 10)
    alias = Cluster(f"localhost:{broker.kafka_port}")
    for same in (source, alias):
        with pytest.raises(InvalidRequestError, match="copied into itself"):
            bridge(source, same, name, name=name)
    assert length(source, name, 1) == 10


def test_organisations_of_one_server_are_two_clusters(name: str, tmp_path: Path) -> None:
    users = ("one:password-1:1", "two:password-2:2")
    with running_broker(tmp_path / "data", kafka_users=users) as broker:
        from_one, to_two = (
            f"kafka://{user.rpartition(':')[0]}@{broker.bootstrap}" for user in users
        )
        producer = Producer(Address(from_one).settings)
        producer.produce(name, b"1")
        assert producer.flush(20) == 0
        settings = BridgeSettings(Address(from_one), Address(to_two), (name,), name, True)
        assert Bridge(settings, threading.Event()).run().copied == 1


# -- records the source lost


@pytest.mark.parametrize(
    ("first_left", "is_skipped", "then"),
    [
        (80, False, range(100, 200)),  # the last copies are still in the source
        (100, False, range(100, 200)),  # all that is gone was copied
        (150, True, range(150, 200)),
    ],
)
def test_what_a_killed_bridge_copied_is_found_among_what_the_source_still_has(
    source: Cluster,
    dest: Cluster,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    first_left: int,
    is_skipped: bool,
    then: range,
) -> None:
    monkeypatch.setattr(f"{BRIDGE}.STATEMENT_US", 10**12)
    source.make(name)
    source.write(name, 0, 100)

    def report(progress: BridgeProgress) -> None:
        if progress.copied == 100:
            raise KilledError

    with pytest.raises(KilledError):
        Bridge(settings_of(source, dest, name, name), threading.Event(), report).run()
    assert last_statement(dest, name).position(name, 0) == (0, 0)
    source.write(name, 100, 100)
    forget(source, name, first_left)
    if is_skipped:
        with pytest.raises(BridgeStoppedError, match="--skip-lost goes on"):
            bridge(source, dest, name, name=name)
    assert bridge(source, dest, name, name=name, skip_lost=is_skipped).copied == len(then)
    assert values(dest, name) == numbered(*range(100), *then)


def test_a_bridge_that_is_overtaken_while_it_runs_says_how_to_go_on(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name)
    source.write(name, 0, 100)
    with running_bridge(source, dest, name, "--name", name) as process:
        eventually(lambda: length(dest, name, 1) == 100)
        process.send_signal(signal.SIGSTOP)
        producer = Producer({"bootstrap.servers": source.bootstrap})
        for _ in range(3_000):
            producer.produce(name, os.urandom(1_000))
        assert producer.flush(20) == 0
        forget(source, name, 3_000)
        process.send_signal(signal.SIGCONT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "again with --skip-lost" in told
    assert last_statement(dest, name).is_clean
    bridge(source, dest, name, name=name, skip_lost=True)
    assert values(dest, name)[-100:] == values(source, name)


# -- the destination is away, or refuses


def test_a_bridge_ends_when_told_while_the_destination_is_away_and_tells_the_lag_meanwhile(
    source: Cluster, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{BRIDGE}.SOURCE_CHECK_US", 50_000)
    monkeypatch.setattr(f"{BRIDGE}.FLUSH_S", 1.0)
    source.make(name)
    source.write(name, 0, 10)
    with running_broker(tmp_path / "away") as broker:
        to = Address(f"kafka://{broker.bootstrap}", ["queue.buffering.max.messages=10"])
        from_ = Address(source.address, ["queued.min.messages=1"])
        running = Background(BridgeSettings(from_, to, (name,), name))
        eventually(lambda: running.copied == 10)
    source.write(name, 10, 500)
    eventually(lambda: running.told is not None and running.told.lag == 500)
    source.write(name, 510, 500)
    eventually(lambda: running.told is not None and running.told.lag == 1_000)
    running.end()
    assert isinstance(running.error, AwayError)


def test_a_destination_topic_dropped_while_the_bridge_runs_is_told_as_that(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name)
    source.write(name, 0, 10)
    running = Background(settings_of(source, dest, name, name))
    eventually(lambda: running.copied == 10)
    dest.admin.delete_topics([name])[name].result(20)
    source.write(name, 10, 10)
    running.wait()
    assert "was dropped meanwhile" in str(running.error)


def test_a_log_topic_may_be_the_destination_and_has_times_of_its_own(
    second: Broker, source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name)
    source.write(name, 0, 10)
    with headwater.Client(f"http://127.0.0.1:{second.port}") as client:
        client.create(name)
    assert bridge(source, dest, name, name=name).copied == 10
    source.write(name, 10, 5)
    assert bridge(source, dest, name, name=name).copied == 5
    assert values(dest, name) == numbered(*range(15))


# -- catching up


def test_catching_up_ends_also_while_somebody_writes(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name)
    source.write(name, 0, 1_000)
    enough = threading.Event()

    def write_on() -> None:
        producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 1})
        while not enough.wait(0.005):
            for _ in range(20):
                producer.produce(name, b"more")
            producer.poll(0)
        producer.flush(20)

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        running = Background(
            BridgeSettings(Address(source.address), Address(dest.address), (name,), name, True)
        )
        running.wait(20)
    finally:
        enough.set()
        writer.join()
    assert running.error is None
    assert running.copied >= 1_000


def test_nothing_is_behind_where_the_last_offsets_of_the_source_are_no_records(
    broker: Broker, source: Cluster, dest: Cluster, name: str
) -> None:
    with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
        client.append(name, [{"data": n, "tag": f"t{n // 6}"} for n in range(10)])
        client.delete(name, match="t1")
    assert bridge(source, dest, name, name=name) == BridgeProgress(6, 0, {f"{name}/0": 0})
    assert bridge(source, dest, name, name=name) == BridgeProgress(0, 0, {f"{name}/0": 0})
