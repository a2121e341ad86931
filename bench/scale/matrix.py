"""What is measured: the axes, the cells that they span, and how long all of it takes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
BATCH: Final = 100

SINGLES: Final = "singles"
BATCHES: Final = "batches"
READS: Final = "reads"
WATCHERS: Final = "watchers"
PRODUCE: Final = "produce"
EVERYTHING: Final = (SINGLES, BATCHES, READS, WATCHERS, PRODUCE)
REDIS: Final = "redis"
NATS: Final = "nats"
KAFKA: Final = "kafka"
PEERS: Final = (REDIS, NATS, KAFKA)
OVER_TOPICS: Final = (READS, SINGLES, BATCHES)
"""In the order in which a scene runs them: reads find what was prepared and nothing else."""

_TURN_OVERHEAD_S: Final = 0.4
"""Starting the program that makes the load, and waiting for its last answers."""
_WARM_UP_S: Final = 1.0
_START_S: Final = 2.0
_PREPARED_REQUESTS_A_SECOND: Final = 3_000


@dataclass(frozen=True, slots=True)
class Variant:
    """How Headwater is started. None: as it decides itself."""

    shards: int | None
    workers: int | None

    @property
    def name(self) -> str:
        said = {"shards": self.shards, "workers": self.workers}
        return ", ".join(
            ["Headwater", *(f"{n} {what}" for what, n in said.items() if n is not None)]
        )

    @property
    def options(self) -> list[str]:
        said = {"--wal-shards": self.shards, "--workers": self.workers}
        return [word for flag, n in said.items() if n is not None for word in (flag, str(n))]


@dataclass(frozen=True, slots=True)
class Cell:
    what: str
    topics: int
    """Of produce: partitions."""
    connections: int
    """Of watchers: how many there are; of produce: producers."""
    cores: int
    """That the servers may use."""

    @property
    def name(self) -> str:
        words = {
            WATCHERS: f"{self.connections} watchers",
            PRODUCE: f"produce, {self.topics} partitions, {self.connections} producers",
        }
        plain = f"{self.what}, {self.topics} topics, {self.connections} connections"
        return f"{words.get(self.what, plain)}, {self.cores} cores"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Everything that was chosen."""

    topics: Sequence[int]
    connections: Sequence[int]
    watchers: Sequence[int]
    variants: Sequence[Variant]
    cores: Sequence[int]
    what: Sequence[str]
    seconds: float
    rounds: int
    warm_up_s: float
    load_threads: int
    limit_s: float
    peers: Sequence[str]
    directory: Path
    out: Path

    def cells(self) -> list[Cell]:
        """In the order of their scenes."""
        return [cell for scene in self.scenes() for cell in scene]

    def scenes(self) -> list[list[Cell]]:
        """Cells that share their servers."""
        return [scene for cores in self.cores for scene in self._scenes_of(cores) if scene]

    def _scenes_of(self, cores: int) -> Iterator[list[Cell]]:
        for topics in self.topics:
            yield [
                Cell(what, topics, connections, cores)
                for what in OVER_TOPICS
                if what in self.what
                for connections in self.connections
            ]
        if WATCHERS in self.what:
            yield [Cell(WATCHERS, 1, watchers, cores) for watchers in self.watchers]
        if PRODUCE in self.what:
            # A producer is a process of its own; more of them than load threads say nothing.
            counts = dict.fromkeys(min(each, self.load_threads) for each in self.connections)
            yield [Cell(PRODUCE, n, count, cores) for n in self.topics for count in counts]

    def cell_s(self, sides: int) -> float:
        turns = self.rounds * (self.seconds + _TURN_OVERHEAD_S)
        return sides * (self.warm_up_s + turns)

    def estimate_s(self, sides_of: Callable[[str], int]) -> float:
        """`sides_of` says how many there are for a kind of cell."""
        whole = 0.0
        for scene in self.scenes():
            sides = max(sides_of(cell.what) for cell in scene)
            prepared = scene[0].topics / _PREPARED_REQUESTS_A_SECOND
            whole += sides * (_START_S + prepared)
            whole += sum(self.cell_s(sides_of(cell.what)) for cell in scene)
        return whole


def numbers(text: str) -> list[int]:
    found = [int(word) for word in text.split(",")]
    if min(found) < 0:
        raise argparse.ArgumentTypeError("a number below 0")
    return list(dict.fromkeys(found))


def at_least_one(text: str) -> list[int]:
    found = numbers(text)
    if min(found) < 1:
        raise argparse.ArgumentTypeError("a number below 1")
    return found


def kinds(text: str) -> list[str]:
    return _names(text, EVERYTHING)


def peers(text: str) -> list[str]:
    return [] if text == "none" else _names(text, PEERS)


def _names(text: str, known: Sequence[str]) -> list[str]:
    found = text.split(",")
    unknown = [word for word in found if word not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not of {', '.join(known)}")
    return found


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m bench scale", description="Rates and latencies over a matrix of settings."
    )
    made.add_argument("--topics", type=at_least_one, metavar="N,..", default=[1, 32, 500])
    made.add_argument("--connections", type=at_least_one, metavar="N,..", default=[1, 64, 256])
    made.add_argument("--watchers", type=at_least_one, metavar="N,..", default=[100, 1000])
    made.add_argument("--shards", type=at_least_one, metavar="N,..", help="(as the server decides)")
    made.add_argument(
        "--workers", type=numbers, metavar="N,..", help="given to serve --workers (not given)"
    )
    made.add_argument(
        "--cores", type=numbers, metavar="N,..", default=[0], help="for the servers; 0 is all"
    )
    made.add_argument("--what", type=kinds, metavar="KIND,..", default=list(EVERYTHING))
    made.add_argument("--seconds", type=float, default=3.0, help="a turn (3)")
    made.add_argument("--rounds", type=int, default=3, help="turns of each side, in turns (3)")
    made.add_argument("--load-threads", type=int, help="(half of the cores)")
    made.add_argument(
        "--limit", type=float, metavar="S", default=3600.0, help="begin no cell that ends later"
    )
    made.add_argument(
        "--peers", type=peers, metavar="NAME,..", default=list(PEERS), help="(all of them), or none"
    )
    made.add_argument("--quick", action="store_true", help="a moment: shows that it runs")
    made.add_argument("--commit", help="of what is measured, where git cannot say it")
    made.add_argument(
        "--directory",
        type=Path,
        default=REPOSITORY / "build" / "bench",
        help="where the servers keep their files: the disk that is measured",
    )
    made.add_argument(
        "--out",
        type=Path,
        default=REPOSITORY / "bench" / "results" / "scale",
        help="where results.jsonl, results.md and the pictures go",
    )
    return made


def chosen(given: argparse.Namespace, *, workers_known: bool) -> Matrix:
    here = len(os.sched_getaffinity(0))
    if given.quick:
        given.topics, given.connections, given.watchers = [1, 8], [4], [10]
        given.seconds, given.rounds = 1.0, 1
    workers = given.workers if workers_known else None
    return Matrix(
        topics=given.topics,
        connections=given.connections,
        watchers=given.watchers,
        variants=[
            Variant(shards, count)
            for shards in given.shards or [None]
            for count in workers or [None]
        ],
        cores=list(dict.fromkeys(min(each or here, here) for each in given.cores)),
        what=given.what,
        seconds=given.seconds,
        rounds=given.rounds,
        warm_up_s=0.0 if given.quick else _WARM_UP_S,
        load_threads=given.load_threads or max(1, here // 2),
        limit_s=given.limit,
        peers=given.peers,
        directory=given.directory,
        out=given.out,
    )
