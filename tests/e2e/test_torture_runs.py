"""The torture program itself: a short run finds nothing, and says what it did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e


def test_a_short_run_finds_no_violation_and_counts_what_it_did(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "headwater.testing.torture", "--minutes", "0.01"]
    words += ["--seed", "2", "--rounds", "2", "--no-images", "--work", str(tmp_path / "work")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 2" in done.stdout
    assert "records compared" in done.stdout
    assert not list((tmp_path / "work").iterdir()), "what a life without a violation had is removed"
