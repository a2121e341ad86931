"""The command line: lives until the time is over, one line a round, a table at the end."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Final

from headwater.testing.torture.actor import Actor
from headwater.testing.torture.block_image import why_no_images
from headwater.testing.torture.life import Broken, Life
from headwater.testing.torture.machines import Machines
from headwater.testing.torture.outcome import Tally
from headwater.testing.torture.plan import plan_life
from headwater.testing.torture.queues import Queues
from headwater.testing.torture.routers import Routers
from headwater.testing.torture.streams import Streams
from headwater.testing.torture.topics import Topics

ROUNDS_DEFAULT: Final = 8
SHOWN_LINES: Final = 30


def kafka_actor() -> Actor:
    """Late: the client is not among what Headwater needs."""
    from headwater.testing.torture.kafka import Kafka

    return Kafka()


PROTOCOLS: Final[dict[str, Callable[[], Actor]]] = {
    "topics": Topics,
    "queues": Queues,
    "machines": Machines,
    "kafka": kafka_actor,
    "routers": Routers,
    "streams": Streams,
}


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
        default=",".join(PROTOCOLS),
        help=f"of {', '.join(PROTOCOLS)} (all)",
    )
    parser.add_argument("--work", type=Path, help="where to put data (a temporary directory)")
    parser.add_argument(
        "--no-images", action="store_true", help="no loop devices, also where there is root"
    )
    arguments = parser.parse_args(words)
    unknown = set(arguments.protocols.split(",")) - set(PROTOCOLS)
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
        say(f"seed {self.seed}, {arguments.minutes:g} minutes, {arguments.protocols}, {images}")
        number = arguments.life or 0
        while True:
            directory = work / f"life-{number}"
            directory.mkdir(parents=True)
            plan = plan_life(self.seed, number, arguments.rounds, images=why_not is None)
            actors = [PROTOCOLS[name]() for name in arguments.protocols.split(",")]
            life = Life(self.seed, plan, actors, directory, self.tally, say)
            try:
                broken = life.run(self._is_time_over)
                if broken is not None:
                    self._tell_broken(broken, life, number)
                    return 1
            finally:
                life.close()
            shutil.rmtree(directory)
            self.tally.add("lives")
            number += 1
            if self._is_time_over() or arguments.life is not None:
                break
        if arguments.work is None:
            shutil.rmtree(work)
        self._tell_counts()
        return 0

    def _is_time_over(self) -> bool:
        return bool(time.monotonic() - self._began > self._arguments.minutes * 60)

    def _tell_broken(self, broken: Broken, life: Life, number: int) -> None:
        say(f"\nVIOLATION in {broken.where}, seed {self.seed}:")
        for violation in broken.violations:
            say(f"  {violation}")
        say("\nlast lines of the server:")
        for line in life.server.last_lines(SHOWN_LINES):
            say(f"  {line}")
        arguments = self._arguments
        say(f"\nwhat is left: {life.data} (log in {life.server.log})")
        say(
            f"again: python -m headwater.testing.torture --seed {self.seed} --life {number} "
            f"--rounds {arguments.rounds} --protocols {arguments.protocols} --minutes 60"
        )
        self._tell_counts()

    def _tell_counts(self) -> None:
        minutes = (time.monotonic() - self._began) / 60
        say(f"\nseed {self.seed}: {minutes:.1f} minutes")
        for name, count in sorted(self.tally.counts().items()):
            say(f"{count:>12,}  {name}")


def main(words: Sequence[str] | None = None) -> int:
    return Program(read_arguments(words)).run()


if __name__ == "__main__":
    sys.exit(main())
