"""Everything at once, on this machine, with nothing made up but the shop.

    make demo                 or: python examples/demo [--no-wait] [--only queue]

Starts a server in a temporary directory, streams events through HTTP and Kafka at the same time,
works a queue with two workers, walks state machines, kills the server in the middle of writing,
lands a topic in a table with Spark, and tells what it found. Every step checks that what was
acknowledged is there. Ctrl-C stops everything and cleans up.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NoReturn

import crashing
import httpx
import lake
import machines
import streaming
import working
from report import show
from rich.console import Console
from server import Server, ServerError
from stage import BrokenPromiseError, Figures, NotHereError, Stage, Step

from headwater.core.errors import HeadwaterError

STEPS: dict[str, tuple[str, Step]] = {
    "stream": ("Events of a shop, two doors at once", streaming.run),
    "queue": ("Two workers, one queue", working.run),
    "machines": ("Orders as state machines", machines.run),
    "crash": ("kill -9 in the middle of writing", crashing.run),
    "spark": ("The topic as a table", lake.run),
}
NEEDS = {"queue": ("stream",), "machines": ("stream",), "spark": ("stream",)}
"""What must have run before, for a step that is asked for alone."""
EXIT_INTERRUPTED = 130


def arguments() -> argparse.Namespace:
    flags = argparse.ArgumentParser(
        prog="make demo", description=(__doc__ or "").partition("\n")[0]
    )
    flags.add_argument("--no-wait", action="store_true", help="end after the report")
    flags.add_argument("--only", nargs="+", choices=STEPS, metavar="STEP", help=", ".join(STEPS))
    flags.add_argument("--skip", nargs="+", choices=STEPS, metavar="STEP", default=[])
    flags.add_argument("--events", type=int, default=20_000, help="events over each door")
    flags.add_argument("--port", type=int, default=0, help="of HTTP; 0 picks a free one")
    return flags.parse_args()


def chosen(only: list[str] | None, skip: list[str]) -> list[str]:
    wished = set(only or STEPS) - set(skip)
    needed = {earlier for name in wished for earlier in NEEDS.get(name, ())}
    return [name for name in STEPS if name in wished | needed]


def play(stage: Stage, names: list[str]) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    for number, name in enumerate(names, 1):
        title, step = STEPS[name]
        stage.console.print(f"[bold]{number}/{len(names)}[/bold] {title}")
        began = time.monotonic()
        try:
            figures = step(stage)
        except NotHereError as error:
            figures = {"left out": str(error)}
        stage.console.print(f"   [dim]{time.monotonic() - began:.1f} s[/dim]")
        found[title] = figures
    return found


def main() -> int:
    given = arguments()
    # A polite end from outside is the same as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=110)
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as scratch:
        server = Server(Path(scratch), given.port)
        try:
            code = perform(Stage(server, Path(scratch), console, given.events), given)
        except KeyboardInterrupt:
            console.print("\nstopped by Ctrl-C")
            code = EXIT_INTERRUPTED
        except BrokenPromiseError as error:
            complain(console, f"a promise was broken, please report this: {error}")
            code = 1
        except (HeadwaterError, ServerError, httpx.HTTPError) as error:
            complain(console, f"{error}\nthe server said: {server.last_words()}")
            code = 1
        finally:
            # Who presses it twice gets what was asked for the first time, and no half of it.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            ended = end(server, console)
    return code if ended else code or 1


def end(server: Server, console: Console) -> bool:
    """Whether it ended as it should: one that died in between is told of, and nothing is left."""
    try:
        server.stop()
    except ServerError as error:
        complain(console, f"{error}\nits directory is removed")
        return False
    console.print("the server stopped cleanly, its directory is removed")
    return True


def complain(console: Console, text: str) -> None:
    """As it is: what others said may have brackets, and lines are not broken for a pipe."""
    console.print("FAILED ", style="red", end="")
    console.print(text, markup=False, soft_wrap=True)


def perform(stage: Stage, given: argparse.Namespace) -> int:
    stage.console.print(f"starting a server in {stage.server.data}")
    ready_s = stage.server.start()
    stage.console.print(f"   {stage.url} answered after {ready_s:.1f} s")
    started = time.monotonic()
    found = play(stage, chosen(given.only, given.skip))
    show(stage, found, time.monotonic() - started)
    if not given.no_wait:
        try:
            stage.console.print(f"\nLook around at {stage.url}/ and press Ctrl-C to end.")
            threading.Event().wait()
        except KeyboardInterrupt:
            stage.console.print()
    return 0


def leave(code: int) -> NoReturn:
    """All is stopped and removed; threads that wait for an answer are not waited for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
