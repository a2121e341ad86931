"""`make demo` keeps its promise, cleans up, and says so with its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "wal_demo.py"


@pytest.mark.e2e
def test_the_demo_loses_nothing_refuses_damage_and_cleans_up(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO), "--seconds", "0.5"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "Nothing acknowledged was lost" in done.stdout
    assert "refused: " in done.stdout
    assert "pass over: " in done.stdout
    assert list(tmp_path.iterdir()) == []
