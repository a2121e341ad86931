"""What `headwater bridge` says when it is refused: one line, the reason, and what to change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from headwater.cli.app import app
from tests.kafka.bridges import Cluster, command
from tests.kafka.broker import running_broker

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("user", "code", "said"),
    [
        ("ann:wrong-password@", 2, "the name or the password is wrong"),
        ("", 3, "Does it want a user and a password"),
    ],
)
def test_who_may_not_sign_in_is_told_why(
    source: Cluster,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: str,
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr("headwater.client.bridge.clusters.ANSWER_S", 4.0 if code == 3 else 100.0)
    source.make(name)
    with running_broker(tmp_path / "data", kafka_users=("ann:the-password",)) as broker:
        words = ["bridge", "--from", source.address, "--to", f"kafka://{user}{broker.bootstrap}"]
        ran = CliRunner().invoke(app, [*words, "--topics", name])
    assert ran.exit_code == code, ran.stderr
    assert said in ran.stderr
    assert "wrong-password" not in ran.stderr


@pytest.mark.parametrize(
    ("setting", "said"),
    [("foo=bar", "foo"), ("linger.ms=abc", "Invalid value"), ("throttle_cb=x", "throttle_cb")],
)
@pytest.mark.parametrize("side", ["--from-config", "--to-config"])
def test_settings_that_librdkafka_refuses_are_told_in_one_line(
    source: Cluster, dest: Cluster, tmp_path: Path, side: str, setting: str, said: str
) -> None:
    config = tmp_path / "config"
    config.write_text(setting + "\n")
    ran = CliRunner().invoke(app, command(source, dest, "whatever", side, str(config))[3:])
    assert ran.exit_code == 2, ran.stderr
    assert said in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_a_free_port_for_metrics_is_told_and_one_record_is_one(
    source: Cluster, dest: Cluster, name: str
) -> None:
    source.make(name)
    source.write(name, 0, 1)
    words = command(source, dest, name, "--name", name, "--until-caught-up", "--metrics-port", "0")
    ran = CliRunner().invoke(app, [word for word in words[3:] if word != "--json"])
    assert ran.exit_code == 0, ran.stderr
    assert "metrics at http://127.0.0.1:" in ran.stderr
    assert "1 record copied; 0 behind" in ran.stdout


@pytest.mark.parametrize("record_bytes", [1_000, 30_000])
def test_a_batch_that_the_destination_finds_too_large_is_told_with_the_limit(
    source: Cluster,
    dest: Cluster,
    name: str,
    record_bytes: int,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    source.make(name)
    producer = Producer({"bootstrap.servers": source.bootstrap})
    for _ in range(40):
        producer.produce(name, os.urandom(record_bytes))
    assert producer.flush(20) == 0
    limited = NewTopic(name, 1, config={"max.message.bytes": "20000"})
    dest.admin.create_topics([limited])[name].result(20)
    words = command(source, dest, name, "--name", name, "--until-caught-up")[3:]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 2, ran.stderr
    told = f"{name}/0: the destination refuses a batch that is larger than the topic's"
    assert told in ran.stderr
    assert "max.message.bytes (20000)" in ran.stderr
    assert "batch.size in --to-config" in ran.stderr
    assert "FATAL" not in capfd.readouterr().err  # librdkafka writes past Python
    if record_bytes < 20_000:
        config = tmp_path / "to"
        config.write_text("batch.size=15000\n")
        ran = CliRunner().invoke(app, [*words, "--to-config", str(config)])
        assert ran.exit_code == 0, ran.stderr
        assert dest.read(name) == source.read(name)
