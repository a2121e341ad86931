"""The end of a server: asked politely, asked twice, killed while clients write and try again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

import pytest

from headwater.disk import PosixDisk
from headwater.recovery.topics.report import inspect_wal
from tests.server.raw_http import Answer, RawHttp
from tests.server.running_server import RunningServer, running, settings

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).parents[2]
KILLS = 6
WRITERS = 8


class ServerProcess:
    def __init__(self, directory: Path, sync_ms: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.server_process", str(directory), str(sync_ms)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        word, port = self.process.stdout.readline().split()
        assert word == "ready"
        self.port = int(port)

    def talk(self) -> RawHttp:
        return RawHttp("127.0.0.1", self.port)


@contextmanager
def server_process(directory: Path, sync_ms: int = 0) -> Iterator[ServerProcess]:
    server = ServerProcess(directory, sync_ms)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


def everything(server: RunningServer, topic: str) -> list[Any]:
    with server.talk() as http:
        found: list[Any] = []
        while True:
            page = http.diff(topic, len(found), limit=1_000).json
            found += [record["data"] for record in page["records"]]
            if page["caught_up"]:
                return found


@pytest.mark.parametrize("times", [1, 2])
def test_what_was_acked_before_a_polite_stop_is_kept_and_the_rest_was_refused(
    tmp_path: Path, times: int
) -> None:
    acked: list[int] = []
    refused: list[Answer] = []
    lost: list[int] = []
    with server_process(tmp_path / "data", sync_ms=20) as server:
        halfway = threading.Event()

        def write(number: int) -> None:
            with server.talk() as http:
                for count in range(10_000):
                    datum = number * 100_000 + count
                    try:
                        answer = http.write("t", datum)
                    except ConnectionError:
                        lost.append(datum)
                        return
                    if answer.status >= 300:
                        refused.append(answer)
                        return
                    acked.append(datum)
                    if len(acked) > 100:
                        halfway.set()

        writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
        waiting = server.talk()
        waiting.put("quiet")
        waiting.send(waiting.request("POST", "/v0/topics/quiet/diff", {"wait_ms": 30_000}))
        for writer in writers:
            writer.start()
        assert halfway.wait(30)
        for _ in range(times):
            server.process.send_signal(signal.SIGTERM)
        for writer in writers:
            writer.join(20)
        assert waiting.answer().json["caught_up"] is True, "who waits is answered"
        waiting.close()
        assert server.process.wait(15) == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == "stopped\n"
    assert {answer.code for answer in refused} <= {"shutting_down"}
    assert len(refused) + len(lost) == WRITERS
    report = inspect_wal(PosixDisk(), PurePath(tmp_path) / "data" / "wal")
    assert all(shard.files[-1].clean_stop for shard in report.shards)
    with running(tmp_path / "data") as again:
        found = everything(again, "t")
    assert set(acked) <= set(found)
    assert set(found) <= set(acked) | set(lost)
    assert len(found) == len(set(found))


def test_a_stop_waits_for_requests_under_way_and_for_no_longer_than_it_may(
    tmp_path: Path,
) -> None:
    quick = settings(deadlines={"drain_s": 1.0})
    with running(tmp_path / "data", quick) as server, server.talk() as stuck:
        stuck.send(b"POST /v0/topics/t HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        with server.talk() as http:
            http.get("/v0/health")
        server.stop()
        assert stuck.is_closed()


class Writer(threading.Thread):
    """Writes numbers in order and tries each again, with its key, until it is acked."""

    def __init__(
        self, name: str, ports: list[int], done: threading.Event, news: threading.Semaphore
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._ports = ports
        self._done = done
        self._news = news
        self.acked: dict[int, list[int]] = {}
        self.retries = 0
        self.problems: list[str] = []

    def run(self) -> None:
        while not self._done.is_set():
            try:
                with RawHttp("127.0.0.1", self._ports[-1]) as http:
                    self._write(http)
            except (OSError, ValueError):
                self.retries += 1
                self._done.wait(0.01)

    def _write(self, http: RawHttp) -> None:
        while not self._done.is_set():
            number = len(self.acked)
            datas = [[self.name, number, part] for part in range(3)]
            answer = http.write("t", *datas, idempotency_key=f"{self.name}-{number}")
            if answer.status < 300:
                self.acked[number] = answer.json["seqs"]
                self._news.release()
            elif answer.status not in (429, 503):
                self.problems.append(repr(answer))


@pytest.mark.timeout(120)
def test_killed_under_load_with_clients_that_retry_nothing_acked_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "data"
    ports: list[int] = []
    done = threading.Event()
    news = threading.Semaphore(0)
    writers = [Writer(f"w{number}", ports, done, news) for number in range(WRITERS)]
    for kill in range(KILLS):
        with server_process(directory) as server:
            ports.append(server.port)
            if not kill:
                for writer in writers:
                    writer.start()
            for _ in range(60 * (1 + kill % 3)):
                assert news.acquire(timeout=30), [writer.problems for writer in writers]
            server.process.kill()
            server.process.wait()
    with server_process(directory) as server:
        ports.append(server.port)
        for _ in range(60):
            assert news.acquire(timeout=30)
        done.set()
        for writer in writers:
            writer.join(30)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 0
    assert not any(writer.problems for writer in writers)
    assert sum(writer.retries for writer in writers) > 0, "nobody had to try again"
    with running(directory) as again:
        found = everything(again, "t")
    as_written = [json.dumps(datum) for datum in found]
    assert len(set(as_written)) == len(as_written), "something was doubled"
    for writer in writers:
        mine = [datum[1:] for datum in found if datum[0] == writer.name]
        assert mine == sorted(mine), "the order of one writer"
        for number, seqs in writer.acked.items():
            for part, seq in enumerate(seqs):
                assert found[seq - 1] == [writer.name, number, part]
