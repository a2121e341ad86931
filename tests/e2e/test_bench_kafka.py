"""The benchmarks of the Kafka protocol run, read back what was written, and end what they start."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.kafka import brokers
from bench.registry import BENCHMARKS, chosen_names, load_all

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "benchmarks.md"


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_kafka_benchmarks_run_and_leave_no_process_behind(tmp_path: Path) -> None:
    load_all()
    results = tmp_path / "results.json"
    words = ("kafka", "--quick", "--directory", str(tmp_path / "scratch"), "--json", str(results))
    ran = subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kept = json.loads(results.read_text(encoding="utf-8"))["results"]
    assert {result["name"] for result in kept} == set(chosen_names(["kafka"]))
    said = json.dumps(kept)
    has_kafka = brokers.missing() is None
    assert ("Apache Kafka, 100 B" in said) == has_kafka
    assert ("Redis Streams" in said) == (not has_kafka and shutil.which("redis-server") is not None)
    there = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in there if str(tmp_path / "scratch").encode() in line]


def test_the_page_has_a_place_for_every_benchmark_of_kafka() -> None:
    load_all()
    text = PAGE.read_text(encoding="utf-8")
    named = [name for name, its in BENCHMARKS.items() if its.group == "kafka"]
    assert named == [
        "kafka-produce", "kafka-partitions", "kafka-waiting", "kafka-consume", "kafka-latency",
        "kafka-file", "kafka-recovery", "kafka-topics", "kafka-batches",
    ]  # fmt: skip
    assert all(f"<!-- bench {name} -->" in text for name in named)


def test_a_machine_without_apache_kafka_is_told_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    assert brokers.missing() == f"no Apache Kafka here: {brokers.INSTALL}"
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    assert brokers.missing() == f"KAFKA_HOME has no libs/kafka_*.jar: {brokers.INSTALL}"
