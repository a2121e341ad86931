"""Reading a data directory while another process owns it: reports, notebooks, a look at production.

Run it with `python examples/read_beside_owner.py`. It starts a process that writes, reads beside
it, and stops it. It uses a temporary directory and no network.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import headwater
from headwater import Tombstone
from headwater.core.errors import DirectoryInUseError

RECORDS = 200


def own(directory: str) -> None:
    """The other process: writes, tells, and keeps the directory until its input ends."""
    with headwater.open(directory) as db:
        db.append("readings", {"data": {"n": 0}})
        print("open", flush=True)
        for number in range(1, RECORDS):
            db.append("readings", {"data": {"n": number}})
        sys.stdin.read()


def main(directory: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, __file__, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    owner.stdout.readline()

    # A second owner is refused: two of them would write over each other.
    try:
        headwater.open(directory)
    except DirectoryInUseError as error:
        print(f"refused: {type(error).__name__}")

    # A reader takes no lock and changes nothing, not even a file's time. What the owner has
    # acknowledged is seen by the next read.
    with headwater.open(directory, read_only=True) as reader:
        seen = 0
        for item in reader.watch("readings", idle_ms=30_000):
            assert not isinstance(item, Tombstone)
            seen += 1
            if seen == RECORDS:
                break
        print(f"read {seen} records while they were written")
        print([state.topic for state in reader.topics()])

    owner.communicate()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        own(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory(prefix="headwater-example-") as scratch:
            main(Path(scratch) / "data")
