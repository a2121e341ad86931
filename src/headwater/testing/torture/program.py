"""The command line: lives until the time is over, one line a round, a table at the end."""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import SystemRandom
from typing import Final

from headwater.testing.torture.actor import Actor
from headwater.testing.torture.beside import Beside
from headwater.testing.torture.block_image import why_no_images
from headwater.testing.torture.drops import DropActor
from headwater.testing.torture.embedded import EmbeddedActor
from headwater.testing.torture.fake_life import FakeLife
from headwater.testing.torture.life import Broken, Life
from headwater.testing.torture.machines import MachineActor
from headwater.testing.torture.outcome import Tally
from headwater.testing.torture.plan import plan_life
from headwater.testing.torture.queues import QueueActor
from headwater.testing.torture.routers import RouterActor
from headwater.testing.torture.streams import Streams
from headwater.testing.torture.topics import TopicActor

ROUNDS_DEFAULT: Final = 8
FAKE_DISK: Final = "fake-disk"
FAKE_LIVES: Final = 10
"""On the fake disk, beside each one of a server."""
SHOWN_LINES: Final = 30


def kafka_actor() -> Actor:
    """Late: the client is not among what Headwater needs."""
    from headwater.testing.torture.kafka import KafkaActor

    return KafkaActor()


PROTOCOLS: Final[dict[str, Callable[[], Actor]]] = {
    "topics": TopicActor,
    "queues": QueueActor,
    "machines": MachineActor,
    "kafka": kafka_actor,
    "routers": RouterActor,
    "streams": Streams,
    "beside": Beside,
    "embedded": EmbeddedActor,
    "drops": DropActor,
}

EVERYTHING: Final = (*PROTOCOLS, FAKE_DISK)


def read_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m headwater.testing.torture",
        description="Every protocol at once, with kills; an oracle that knows only the answers.",
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="how long (2)")
    parser.add_argument("--seed", type=int, help="what to plan (a new one each time)")
    parser.add_argument("--life", type=int, help="only this life of the seed, to see it again")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS_DEFAULT, help=f"rounds of a life ({ROUNDS_DEFAULT})"
    )
    parser.add_argument(
        "--protocols",
        default=",".join(EVERYTHING),
        help=f"of {', '.join(EVERYTHING)} (all)",
    )
    parser.add_argument("--work", type=Path, help="where to put data (a temporary directory)")
    parser.add_argument(
        "--no-images", action="store_true", help="no loop devices, also where there is root"
    )
    arguments = parser.parse_args(words)
    arguments.protocols = arguments.protocols.split(",")
    unknown = set(arguments.protocols) - set(EVERYTHING)
    if unknown:
        parser.error(f"there is no protocol {', '.join(sorted(unknown))}")
    return arguments


def say(line: str) -> None:
    print(line, flush=True)


class Program:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        seed = arguments.seed
        self.seed = SystemRandom().randrange(1_000_000) if seed is None else int(seed)
        self.tally = Tally()
        self._began = time.monotonic()

    def run(self) -> int:
        arguments = self._arguments
        work = arguments.work or Path(tempfile.mkdtemp(prefix="headwater-torture-"))
        why_not = "told so" if arguments.no_images else why_no_images()
        images = "with loop devices" if why_not is None else f"no loop devices ({why_not})"
        protocols = ",".join(arguments.protocols)
        say(f"seed {self.seed}, {arguments.minutes:g} minutes, {protocols}, {images}")
        if "kafka" in arguments.protocols and find_spec("confluent_kafka") is None:
            say("no Kafka: confluent-kafka is not installed")
            arguments.protocols.remove("kafka")
        # What recoveries print belongs to the user who runs them.
        logging.getLogger("headwater").addHandler(logging.NullHandler())
        number = arguments.life or 0
        while True:
            is_kept = self._fake_lives(number) and self._life(number, work, images=why_not is None)
            if not is_kept:
                self._print_counts()
                return 1
            number += 1
            if self._is_time_over() or arguments.life is not None:
                break
        if arguments.work is None:
            shutil.rmtree(work)
        self._print_counts()
        return 0

    def _fake_lives(self, number: int) -> bool:
        if FAKE_DISK not in self._arguments.protocols:
            return True
        began = time.monotonic()
        for each in range(number * FAKE_LIVES, (number + 1) * FAKE_LIVES):
            violations = FakeLife(self.seed, each, self.tally).run()
            if violations:
                say(f"\nVIOLATION in life {each} on the fake disk, seed {self.seed}:")
                for violation in violations:
                    say(f"  {violation}")
                say(f"\nagain, the same to the byte: {self._command(number, [FAKE_DISK])}")
                return False
        say(f"{FAKE_LIVES} lives on the fake disk; {time.monotonic() - began:.1f} s")
        return True

    def _life(self, number: int, work: Path, *, images: bool) -> bool:
        arguments = self._arguments
        names = [name for name in arguments.protocols if name != FAKE_DISK]
        if not names:
            return True
        directory = work / f"life-{number}"
        directory.mkdir(parents=True)
        plan = plan_life(self.seed, number, arguments.rounds, images=images)
        actors = [PROTOCOLS[name]() for name in names]
        life = Life(self.seed, plan, actors, directory, self.tally, say)
        try:
            broken = life.run(self._is_time_over)
            if broken is not None:
                self._print_broken(broken, life, number)
                return False
        finally:
            life.close()
        shutil.rmtree(directory)
        self.tally.add("lives")
        return True

    def _is_time_over(self) -> bool:
        return bool(time.monotonic() - self._began > self._arguments.minutes * 60)

    def _print_broken(self, broken: Broken, life: Life, number: int) -> None:
        say(f"\nVIOLATION in {broken.where}, seed {self.seed}:")
        for violation in broken.violations:
            say(f"  {violation}")
        say("\nlast lines of the server:")
        for line in life.server.last_lines(SHOWN_LINES):
            say(f"  {line}")
        say(f"\nwhat is left: {life.keep()} (log in {life.server.log})")
        say(f"again: {self._command(number, self._arguments.protocols)}")

    def _command(self, life: int, protocols: Sequence[str]) -> str:
        return (
            f"python -m headwater.testing.torture --seed {self.seed} --life {life} "
            f"--rounds {self._arguments.rounds} --protocols {','.join(protocols)} --minutes 60"
        )

    def _print_counts(self) -> None:
        minutes = (time.monotonic() - self._began) / 60
        say(f"\nseed {self.seed}: {minutes:.1f} minutes")
        for name, count in sorted(self.tally.counts().items()):
            say(f"{count:>12,}  {name}")


def main(words: Sequence[str] | None = None) -> int:
    # The signal that ends this run ends its server and unmounts its file systems.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return Program(read_arguments(words)).run()


if __name__ == "__main__":
    sys.exit(main())
