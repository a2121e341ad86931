"""The examples run as they are, print what they promise, and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PROMISED = {
    "library_quickstart.py": [
        "wrote seqs 2 to 3",
        "seq 4, a repeat: True",
        "refused (head_conflict)",
        "came: 6 {'id': 5}",
        "deleted 2, 4 left",
        "after a restart: 4 records, head 6",
    ],
    "asyncio_app.py": [
        "200 records from 20 writers",
        "nothing new: True",
        "190 records from others",
    ],
    "read_beside_owner.py": [
        "refused: DirectoryInUseError",
        "read 200 records while they were written",
    ],
    "backup_and_restore.py": [
        "backed up 5 records",
        "verified 5 records",
        "restored to 3: [1, 2, 3]",
        "goes on with 6",
    ],
}
TESTED_ELSEWHERE = {"wal_demo.py"}


@pytest.mark.e2e
@pytest.mark.parametrize("name", PROMISED)
def test_the_example_runs_and_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    printed = done.stdout.splitlines()
    assert [line for line in PROMISED[name] if line not in printed] == []
    assert list(tmp_path.iterdir()) == []


def test_there_is_no_example_that_no_test_runs() -> None:
    there = {path.name for path in EXAMPLES.glob("*.py")}
    assert there == PROMISED.keys() | TESTED_ELSEWHERE
