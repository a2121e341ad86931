"""The published Java client, when its jars are there.

Put them somewhere with `mvn dependency:copy-dependencies` for com.rstmdb:rstmdb-client, and tell
where in RSTMDB_CLIENT_JARS.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

SESSION = Path(__file__).with_name("RstmdbSession.java")
WANTED = {
    "hello": "1 binary_json",
    "info": "headwater 16777216 100",
    "features": "true",
    "put": "true",
    "put again": "false",
    "states": "created,paid,shipped,cancelled",
    "from": "[created, paid]",
    "listed": "true",
    "no machine": "MACHINE_NOT_FOUND",
    "created": "true created",
    "exists": "INSTANCE_EXISTS",
    "instance": "created alice",
    "same offset": "true",
    "all": "false",
    "list": "1",
    "deleted": "true",
    "deleted twice": "true",
    "gone": "INSTANCE_NOT_FOUND",
    "moved": "created paid true",
    "merged": "ann alice",
    "invalid": "INVALID_TRANSITION",
    "conflict": "CONFLICT",
    "once": "true false",
    "atomic": "ok,ok",
    "best effort": "error,ok",
    "empty": "",
    "refused": "INVALID_TRANSITION",
    "watched": "created paid ann",
    "watched by all": "true",
    "record": "true create_instance",
    "next": "true",
    "many": "true",
    "stats": "true true",
    "snapshot": "true true 8",
    "compacted": "1 true true",
    "pipelined": "[paid]",
}


def test_a_session_with_the_java_client_goes_as_it_was_written(rcpx_port: int, name: str) -> None:
    jars = os.environ.get("RSTMDB_CLIENT_JARS")
    if jars is None or shutil.which("java") is None:
        pytest.skip(
            "no Java client of machines (RSTMDB_CLIENT_JARS names the directory of its jars)"
        )
    done = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(SESSION), "127.0.0.1", str(rcpx_port), name],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert dict(line.split("=", 1) for line in done.stdout.splitlines()) == WANTED
