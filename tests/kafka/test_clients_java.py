"""Kafka's own Java client, when its jars are there.

Put them somewhere with `mvn dependency:copy-dependencies` for org.apache.kafka:kafka-clients, and
tell where in KAFKA_CLIENT_JARS.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kafka.broker import Broker

SESSION = Path(__file__).with_name("JavaSession.java")
WANTED = {
    "read": "700",
    "dense": "true",
    "committed": "30",
    "time": "5",
    "end": "700",
    "described": "2",
    "by id": "true",
    "grouped": "a note",
    "state": "Empty",
    "config": "86400000",
    "grown": "4",
    "low": "50",
    "cluster": "headwater",
    "gone": "true",
}


def test_a_session_with_the_java_client_goes_as_with_kafka(broker: Broker, name: str) -> None:
    jars = os.environ.get("KAFKA_CLIENT_JARS")
    if jars is None or shutil.which("java") is None:
        pytest.skip("no Java client of Kafka (KAFKA_CLIENT_JARS names the directory of its jars)")
    done = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(SESSION), broker.bootstrap, name],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert dict(line.split("=", 1) for line in done.stdout.splitlines()) == WANTED
