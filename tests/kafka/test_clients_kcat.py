"""kcat, from the shell."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.kafka.broker import Broker

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed (apt-get install kcat)"
)


def kcat(broker: Broker, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out_in_order(broker: Broker, name: str, codec: str) -> None:
    lines = [f"key {number}:line {number}" for number in range(200)]
    kcat(broker, "-P", "-t", name, "-K:", "-z", codec, given="\n".join(lines) + "\n")
    found = kcat(broker, "-C", "-t", name, "-e", "-q", "-K:", "-o", "beginning")
    assert found.splitlines() == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_ack_is_taken(broker: Broker, name: str, acks: str) -> None:
    kcat(broker, "-P", "-t", name, "-X", f"acks={acks}", given="one\ntwo\n")
    assert kcat(broker, "-C", "-t", name, "-c", "2", "-q", "-o", "beginning") == "one\ntwo\n"


def test_reading_begins_where_it_is_told_to(broker: Broker, name: str) -> None:
    kcat(broker, "-P", "-t", name, given="".join(f"{number}\n" for number in range(10)))
    assert kcat(broker, "-C", "-t", name, "-e", "-q", "-o", "7") == "7\n8\n9\n"
    assert kcat(broker, "-C", "-t", name, "-e", "-q", "-o", "-2") == "8\n9\n"
    assert kcat(broker, "-Q", "-t", f"{name}:0:1").strip() == f"{name} [0] offset 0"


def test_the_topics_there_are_can_be_listed(broker: Broker, name: str) -> None:
    kcat(broker, "-P", "-t", name, given="one\n")
    told = json.loads(kcat(broker, "-L", "-J", "-t", name))
    assert [each["topic"] for each in told["topics"]] == [name]
    assert told["topics"][0]["partitions"][0]["leader"] == 1


def test_a_group_of_one_reads_a_topic(broker: Broker, name: str) -> None:
    kcat(broker, "-P", "-t", name, given="one\ntwo\n")
    arguments = ("-X", "auto.offset.reset=earliest", "-q", "-e", "-G", name, name)
    assert kcat(broker, *arguments) == "one\ntwo\n"
    kcat(broker, "-P", "-t", name, given="three\n")
    assert kcat(broker, *arguments) == "three\n"
