"""KafkaJS, when Node and the package are there: `npm install kafkajs` anywhere, and NODE_PATH."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kafka.broker import Broker

SESSION = Path(__file__).with_name("kafkajs_session.js")


def has_kafkajs() -> bool:
    node = shutil.which("node")
    if node is None:
        return False
    looked = subprocess.run(
        [node, "-e", "require('kafkajs')"], capture_output=True, timeout=60, check=False
    )
    return looked.returncode == 0


def test_a_session_with_kafkajs_goes_as_with_kafka(broker: Broker, name: str) -> None:
    if not has_kafkajs():
        pytest.skip("KafkaJS is not installed (npm install kafkajs, and NODE_PATH to it)")
    done = subprocess.run(
        ["node", str(SESSION), broker.bootstrap, name],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert sorted(each["value"] for each in told["read"]) == sorted(told["sent"])
    for partition in (0, 1):
        rows = [each for each in told["read"] if each["partition"] == partition]
        assert [each["offset"] for each in rows] == list(range(len(rows)))
        assert [each["header"] for each in rows] == [each["value"].split()[2] for each in rows]
    assert {each["partition"]: each["high"] for each in told["ends"]} == {0: "6", 1: "4"}
    (offsets,) = told["offsets"]
    assert {each["partition"]: each["offset"] for each in offsets["partitions"]} == {
        0: "6",
        1: "4",
    }
    assert told["group"]["groups"][0]["state"] == "Empty"
    assert name not in told["topics"]
