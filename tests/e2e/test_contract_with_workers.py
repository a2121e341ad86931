"""A slice of the contract tests with gateways in processes of their own; `make test-workers` runs
all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.server_process import TEST_WORKERS, workers_wanted

REPOSITORY = Path(__file__).parents[2]
SLICE = (
    "tests/server/test_writing.py",
    "tests/server/test_websocket.py",
    "tests/server/test_stopping.py",
    "tests/kafka/test_server_connections.py",
    "tests/machines/test_rcpx_conduct.py",
)


@pytest.mark.e2e
@pytest.mark.one_process
@pytest.mark.timeout(300)
def test_a_slice_of_the_contract_holds_with_workers() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *SLICE],
        cwd=REPOSITORY,
        env={**os.environ, TEST_WORKERS: "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert not workers_wanted()
    assert done.returncode == 0, done.stdout[-4_000:]
    assert " passed" in done.stdout
