"""How long a commit waits for the interpreter, by switch interval, while something computes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final

from bench.payloads import PAYLOAD_BYTES
from bench.registry import Row, Run, benchmark
from bench.turns import Turn, latency_us, median_rate, take_turns
from bench.writers import ConnectionWriters, ThreadWriters, Writers
from headwater.config.wal import WalSettings

INTERVALS_US: Final = (5000, 1000, 500, 200, 100, 50, 20)


class Busy(AbstractContextManager["Busy"]):
    """Something that computes in Python all the time and counts what it got done."""

    def __init__(self) -> None:
        self.done = 0
        self.stopping = False

    def work(self) -> None:
        """About 50 microseconds that never let go of the interpreter."""
        total = 0
        for number in range(1500):
            total += number
        self.done += 1


class BusyThread(Busy):
    """Another thread of the program, such as one that compresses or sorts."""

    def __enter__(self) -> BusyThread:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopping = True
        self._thread.join()

    def _run(self) -> None:
        while not self.stopping:
            self.work()


class BusyLoop(Busy):
    """The event loop itself, busy with other requests between the acks."""

    def __init__(self, writers: ConnectionWriters) -> None:
        super().__init__()
        self._loop = writers.loop

    def __enter__(self) -> BusyLoop:
        self._loop.call_soon(self._again)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopping = True

    def _again(self) -> None:
        if not self.stopping:
            self.work()
            self._loop.call_soon(self._again)


def _at(interval_us: int, writers: Writers, busy: Callable[[], Busy]) -> Callable[[float], Turn]:
    def contender(seconds: float) -> Turn:
        before = sys.getswitchinterval()
        sys.setswitchinterval(interval_us / 1e6)
        try:
            with busy() as load:
                turn = writers(seconds)
        finally:
            sys.setswitchinterval(before)
        turn.background = load.done
        return turn

    return contender


@benchmark("switch", "What does the interpreter's switch interval cost a commit on a busy process?")
def switch_interval(run: Run) -> list[Row]:
    settings = WalSettings(file_bytes=run.file_bytes)
    lone = ThreadWriters(run.directory / "lone", settings, 1)
    many = ConnectionWriters(run.directory / "many", settings, 64)
    rows: list[Row] = []
    for title, writers, busy in (
        ("1 thread beside a busy thread", lone, BusyThread),
        ("64 connections on a busy loop", many, lambda: BusyLoop(many)),
    ):
        turns = take_turns(
            run, {str(interval): _at(interval, writers, busy) for interval in INTERVALS_US}
        )
        writers.close_and_check()
        rows += _rows(title, turns)
    return rows


def _rows(title: str, turns: dict[str, list[Turn]]) -> list[Row]:
    rows: list[Row] = []
    ours = WalSettings().switch_interval_us
    for interval in INTERVALS_US:
        own = turns[str(interval)]
        busy = sum(turn.background for turn in own) / sum(turn.elapsed_s for turn in own)
        told = {
            "payload": f"{PAYLOAD_BYTES} B",
            "durability": "fsync",
            "p50": f"{latency_us(own, 50):,.0f} us",
            "p99": f"{latency_us(own, 99):,.0f} us",
            "busy work/s": f"{busy:,.0f}",
        }
        note = {5000: " (Python's own)", ours: " (ours)"}.get(interval, "")
        row = Row(f"{title}, {interval} us{note}", median_rate(own), "appends/s", told)
        rows.append(row.against(rows[0]) if rows else row)
    return rows
