"""The OpenAPI document held against the server by schemathesis, with an upper bound on its zeal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.running_server import running, settings

KEY = "conformance-secret"
STREAMS = ("/v0/ws", "/v0/watch/{wid}", "/v0/topics/{topic}/work", "/v0/instances/watch")
"""They have no end, so nobody can wait for it."""


@pytest.mark.e2e
def test_the_server_does_what_its_document_says(tmp_path: Path) -> None:
    with running(tmp_path / "data", settings(api_keys=(KEY,))) as server:
        address = f"http://127.0.0.1:{server.port}"
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json",
            "--url", address, "--header", f"Authorization: Bearer {KEY}",
            "--max-examples", "15", "--seed", "7", "--generation-deterministic", "--no-color",
            "--phases", "coverage,fuzzing", "--request-timeout", "20",
            # Limits in bytes cannot be said in a schema, so some valid data is refused.
            "--exclude-checks", "positive_data_acceptance",
        ]  # fmt: skip
        for path in STREAMS:
            command += ["--exclude-path", path]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout or "passed" in done.stdout
