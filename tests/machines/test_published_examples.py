"""The examples of the published Python client, as they come in its source package.

Fetch them with `pip download --no-deps --no-binary :all: rstmdb==0.2.1`, unpack, and say in
RSTMDB_EXAMPLES where the directory `examples` is. They connect to port 7401 of this machine; here
the port is that of a fresh server, and nothing else about them is changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.server_process import ServerProcess, clean_environment
from tests.server.test_foreign_clients import certificate as make_certificate

pytestmark = pytest.mark.e2e

TOKEN = "my-secret-token"
"""What the examples say."""
DRIVER = """
import asyncio, functools, runpy, sys
import rstmdb
path, function, port = sys.argv[1], sys.argv[2], int(sys.argv[3])

class Client(rstmdb.Client):
    def __init__(self, host, _port, **options):
        super().__init__(host, port, **options)

rstmdb.Client = Client
module = runpy.run_path(path)
asyncio.run(module[function]())
"""


@pytest.fixture(scope="module")
def examples() -> Path:
    found = os.environ.get("RSTMDB_EXAMPLES")
    if found is None:
        pytest.skip("no examples of the published client (RSTMDB_EXAMPLES names their directory)")
    return Path(found)


@pytest.fixture(scope="module", params=["with keys", "without"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerProcess, int]]:
    directory = tmp_path_factory.mktemp("examples")
    ports = directory / "ports.json"
    keys = {"HEADWATER_API_KEYS": TOKEN} if request.param == "with keys" else {}
    flags = ("--rcpx-port", "0", "--port-file", str(ports))
    with ServerProcess(directory / "data", *flags, **keys) as process:
        yield process, int(json.loads(ports.read_text(encoding="utf-8"))["rcpx"])


def run(example: Path, port: int, function: str = "main") -> str:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(example), function, str(port)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean_environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


ORDER = {
    "states": ["created", "paid"],
    "initial": "created",
    "transitions": [{"from": "created", "event": "PAY", "to": "paid"}],
}
"""The machine that an example takes for granted."""
PUT_ORDER = f"""
import asyncio, rstmdb, sys

async def main():
    async with rstmdb.Client(port=int(sys.argv[1]), token={TOKEN!r}) as client:
        await client.put_machine("order", 1, {ORDER!r})

asyncio.run(main())
"""


def test_the_basic_example_goes_to_its_end(
    examples: Path, server: tuple[ServerProcess, int]
) -> None:
    told = run(examples / "basic_usage.py", server[1])
    assert "Transition: created -> paid" in told
    assert "Final state: shipped" in told
    assert "Instance deleted" in told


def test_repeats_under_a_key_go_as_the_example_says(
    examples: Path, server: tuple[ServerProcess, int]
) -> None:
    subprocess.run([sys.executable, "-c", PUT_ORDER, str(server[1])], timeout=60, check=True)
    told = run(examples / "idempotency.py", server[1])
    assert "applied=True" in told
    assert "Retry apply: created -> paid, applied=False" in told
    assert "Delete retry succeeded (idempotent)" in told


def test_lists_and_statistics_go_as_the_example_says(
    examples: Path, server: tuple[ServerProcess, int]
) -> None:
    told = run(examples / "list_and_stats.py", server[1])
    assert "Found 2 pending instances" in told
    assert "Page 3 (offset=4, limit=2): 1 items, has_more=False" in told
    assert "Deleted 5 instances" in told


def test_a_watch_hears_what_the_example_does_itself(
    examples: Path, server: tuple[ServerProcess, int]
) -> None:
    told = run(examples / "watch_events.py", server[1], "watch_and_generate")
    assert "pending --(START)--> active" in told
    assert "active --(FINISH)--> completed" in told
    assert "Cleaned up. Total events received: 2" in told


def test_tls_without_a_known_authority_goes_as_the_example_says(
    examples: Path, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    ports = tmp_path / "ports.json"
    flags = ("--rcpx-port", "0", "--port-file", str(ports))
    environment = {
        "HEADWATER_API_KEYS": TOKEN,
        "HEADWATER_TLS_CERTIFICATE": str(certificate),
        "HEADWATER_TLS_KEY": str(key),
    }
    with ServerProcess(tmp_path / "data", *flags, **environment):
        port = int(json.loads(ports.read_text(encoding="utf-8"))["rcpx"])
        told = run(examples / "tls_connection.py", port, "connect_insecure")
    assert "Connected with insecure TLS" in told


@pytest.mark.slow
def test_a_client_comes_back_to_a_server_that_was_started_again(
    examples: Path, tmp_path: Path
) -> None:
    ports = tmp_path / "ports.json"
    with ServerProcess(
        tmp_path / "data", *("--rcpx-port", "0", "--port-file", str(ports))
    ) as first:
        port = int(json.loads(ports.read_text(encoding="utf-8"))["rcpx"])
        client = subprocess.Popen(
            [
                *(sys.executable, "-u", "-c", DRIVER),
                *(str(examples / "reconnection.py"), "main", str(port)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=clean_environment(),
        )
        try:
            assert client.stdout is not None
            told = client.stdout
            assert any("Ping #1 successful" in line for line in told)
            first.kill()
            with ServerProcess(tmp_path / "data", "--rcpx-port", str(port)):
                assert any("Reconnected to server!" in line for line in told)
                assert any("Ping #2 successful" in line for line in told)
        finally:
            client.kill()
            client.communicate(timeout=20)
