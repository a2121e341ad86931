"""SIGKILL of the driver before and after the commit, and of an executor at its work.

Whatever dies, the next run goes on, and every record is in the table or the topic exactly once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater
from tests.rig.server_process import ServerProcess
from tests.unit.spark.lake_tables import rows_by_own_reader, table_at

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]
RECORDS = 6_000
REPOSITORY = Path(__file__).parents[2]
PAD = "x" * 1_000
"""What a Python worker gives on is buffered; a batch of rows must be larger than that."""
PATIENCE_S = 240.0
STEP_S = 0.05
TARGETS = ("delta", "iceberg", "parquet", "topic")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server


def wait_until(condition: Callable[[], object]) -> None:
    """Starting Spark takes its time on a busy machine."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / STEP_S)):
        if condition():
            return
        pause.wait(STEP_S)
    raise AssertionError("it never happened")


class Pipeline:
    """One pipeline, started as often as it takes."""

    def __init__(self, server: ServerProcess, root: Path, target: str) -> None:
        self.server = server
        self.root = root
        self.target = target
        self.gate = root / "gate"
        self.gate.mkdir()
        self.started: list[subprocess.Popen[str]] = []

    def start(
        self, *, die: str | None = None, master: str = "local[2]", gated: bool = False
    ) -> subprocess.Popen[str]:
        is_topic = self.target == "topic"
        plan = {
            "job": "topic" if is_topic else "lake",
            "url": self.server.url,
            "source": "numbers",
            "target": "copies" if is_topic else str(self.root / self.target),
            "format": self.target,
            "checkpoint": str(self.root / "checkpoint"),
            "fields": "number long",
            "records_per_batch": 2_000,
            "master": master,
            "die": die,
            "die_in_batch": 1,
            "gate": str(self.gate) if gated else None,
        }
        file = self.root / "plan.json"
        file.write_text(json.dumps(plan))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.pipeline_process", str(file)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def let_through(self, batches: int) -> None:
        """So many batches of rows of each task; Spark holds two back before the sink sees one."""
        for number in range(batches):
            (self.gate / str(number)).touch()

    def end(self) -> None:
        """Whatever is left of it; a JVM ends with its Python."""
        for process in self.started:
            process.kill()
            process.communicate()

    def run(self, **how: Any) -> tuple[int, str]:
        process = self.start(**how)
        said, _ = process.communicate(timeout=300)
        return process.returncode, said

    def seqs_written(self, client: headwater.Client) -> list[int]:
        if self.target != "topic":
            rows = rows_by_own_reader(table_at(self.target, self.root))
            return sorted(row["number"] for row in rows)
        numbers, cursor = list[int](), 0
        while True:
            diff = client.diff("copies", cursor, limit=1_000)
            numbers += [record.data["number"] for record in diff.records]
            cursor = diff.next_from_seq
            if diff.caught_up:
                return sorted(numbers)

    def landed(self, client: headwater.Client) -> int:
        """How much is there by now, to know when something is under way."""
        try:
            return client.state("copies").count
        except headwater.core.errors.TopicNotFoundError:
            return 0


@pytest.fixture
def client(server: ServerProcess) -> Iterator[headwater.Client]:
    with headwater.Client(server.url) as client:
        for first in range(0, RECORDS, 1_000):
            records = [{"data": {"number": n, "pad": PAD}} for n in range(first, first + 1_000)]
            client.append("numbers", records)
        yield client


Pipelines = Callable[[str], Pipeline]


@pytest.fixture
def pipelines(server: ServerProcess, tmp_path: Path) -> Iterator[Pipelines]:
    made: list[Pipeline] = []

    def make(target: str) -> Pipeline:
        made.append(Pipeline(server, tmp_path, target))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.end()


@pytest.mark.parametrize("die", ["before", "after"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_driver_killed_around_the_commit_doubles_and_loses_nothing(
    server: ServerProcess, client: headwater.Client, pipelines: Pipelines, target: str, die: str
) -> None:
    pipeline = pipelines(target)
    code, said = pipeline.run(die=die)
    assert code == -signal.SIGKILL, said
    assert 0 < len(pipeline.seqs_written(client)) < RECORDS
    server.restart(kill=True)
    code, said = pipeline.run()
    assert code == 0, said
    assert pipeline.seqs_written(client) == list(range(RECORDS))


def test_a_driver_killed_with_half_of_a_batch_in_the_topic_doubles_nothing(
    client: headwater.Client, pipelines: Pipelines
) -> None:
    pipeline = pipelines("topic")
    pipeline.let_through(3)
    process = pipeline.start(gated=True)
    wait_until(lambda: pipeline.landed(client) > 0 or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    half = len(pipeline.seqs_written(client))
    assert 0 < half < RECORDS
    (pipeline.gate / "all").touch()
    code, said = pipeline.run(gated=True)
    assert code == 0, said
    assert pipeline.seqs_written(client) == list(range(RECORDS))


@pytest.mark.parametrize("target", ["delta", "iceberg", "topic"])
def test_an_executor_killed_at_its_work_doubles_and_loses_nothing(
    client: headwater.Client, pipelines: Pipelines, target: str
) -> None:
    pipeline = pipelines(target)
    pipeline.let_through(3)
    process = pipeline.start(gated=True, master="local-cluster[2,1,1024]")
    wait_until(lambda: executors_at_work(process.pid) or process.poll() is not None)
    if target == "topic":
        wait_until(lambda: pipeline.landed(client) > 0 or process.poll() is not None)
    victims = executors_at_work(process.pid)
    assert victims, process.communicate(timeout=60)[0]
    os.kill(victims[0], signal.SIGKILL)
    (pipeline.gate / "all").touch()
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert pipeline.seqs_written(client) == list(range(RECORDS))


def executors_at_work(driver: int) -> list[int]:
    """Executor JVMs below a driver that have a Python worker: a task is running in them."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                command = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
            commands[int(entry.name)] = command

    def is_below(pid: int, ancestor: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == ancestor:
                return True
        return False

    executors = [
        pid
        for pid, command in commands.items()
        if "CoarseGrainedExecutorBackend" in command and is_below(pid, driver)
    ]
    working = [pid for pid, command in commands.items() if "pyspark.daemon" in command]
    return sorted(e for e in executors if any(is_below(worker, e) for worker in working))
