"""`headwater serve`: what it prints, how it ends, and one line for each reason not to start."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

import headwater
from headwater.client import UnauthorizedError
from tests.e2e.cli.conftest import SCRIPT, Shell
from tests.rig.server_process import ServerProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not SCRIPT.exists(), reason="the package is not installed as a script"),
]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_it_tells_its_settings_recovers_and_stops_cleanly(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", HEADWATER_SEGMENT_MAX_EVENTS="50") as server:
        assert server.lines[0] == f"headwater {headwater.__version__}"
        assert "  segment_max_events = 50 (HEADWATER_SEGMENT_MAX_EVENTS)" in server.lines
        assert f"  data_dir = {tmp_path / 'data'} (--data-dir)" in server.lines
        assert "new data directory: nothing to recover" in server.lines
        with headwater.Client(server.url) as client:
            client.append("a", [{"data": n} for n in range(20)])
        server.restart(kill=True)
        assert any(line.startswith("recovered: 1 topic") for line in server.lines)
        assert server.stop() == 0
        assert server.lines[-1] == "stopped cleanly"


def test_the_port_file_and_the_metrics_port_are_there_when_it_listens(tmp_path: Path) -> None:
    ports = tmp_path / "ports.json"
    flags = ("--port-file", str(ports), "--metrics-port", "0")
    with ServerProcess(tmp_path / "data", *flags) as server:
        bound = json.loads(ports.read_text())
        assert bound["http"] == server.port
        address = f"http://127.0.0.1:{bound['metrics']}"
        with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
            assert b"headwater_ready 1.0" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/v0/topics", timeout=10)


def test_keys_are_wanted_when_there_are_any_and_are_never_shown(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("writer-secret:write\nreader-secret:read\n")
    with ServerProcess(tmp_path / "data", HEADWATER_API_KEYS=f"@{keys}") as server:
        assert not any("secret" in line for line in server.lines)
        assert server.lines[-1].endswith("; 2 API keys)")
        with headwater.Client(server.url) as client, pytest.raises(UnauthorizedError):
            client.topics()
        with headwater.Client(server.url, token="writer-secret") as writer:
            writer.append("a", {"data": 1})
        with headwater.Client(server.url, token="reader-secret") as reader:
            assert reader.state("a").count == 1


@pytest.mark.parametrize(
    ("words", "environment", "code", "line"),
    [
        (["--host", "0.0.0.0"], {}, 2, "refusing to listen on 0.0.0.0 without API keys"),
        (["--port", "many"], {}, 2, "command line: --port must be a whole number"),
        ([], {"HEADWATER_PROT": "1"}, 2, "environment: there is no setting HEADWATER_PROT; did"),
        (["--config", "no.toml"], {}, 2, "there is no file no.toml; check the path"),
        (
            ["--data-dir", "no/data"],
            {},
            5,
            "the system says 'no such file or directory' in no/data",
        ),
        ([], {"HEADWATER_API_KEYS": "secret-secret:fly"}, 2, "an API key has the unknown scope"),
        ([], {"HEADWATER_TLS_KEY": "k"}, 2, "TLS needs both a certificate and a key"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_reason_not_to_start_is_one_line(
    shell: Shell, words: list[str], environment: dict[str, str], code: int, line: str
) -> None:
    shell.environment |= environment
    done = shell("serve", "--port", "0", *words)
    assert done.code == code
    (told,) = done.err.splitlines()
    assert told.startswith(f"headwater: {line}"), told
    assert "secret-secret" not in done.out + done.err


def test_a_port_and_a_directory_in_use_are_told_with_what_to_do(
    shell: Shell, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = shell("serve", "--port", port, "--data-dir", "d")
    assert done.code == 5
    assert done.err == (
        f"headwater: cannot listen on 127.0.0.1:{port} (address already in use); "
        "choose another --port, or 0 for a free one\n"
    )
    with ServerProcess(tmp_path / "d"):
        done = shell("serve", "--port", "0", "--data-dir", "d")
    assert done.code == 4
    assert "d is in use by another Headwater (process " in done.err


def test_a_damaged_log_is_refused_with_file_and_offset(shell: Shell, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--wal-shards", "1") as server:
        with headwater.Client(server.url) as client:
            for number in range(20):
                client.append("a", {"data": number})
        server.kill()
    file = tmp_path / "data/wal/wal-0000000000000001.log"
    contents = bytearray(file.read_bytes())
    contents[150] ^= 0xFF
    file.write_bytes(contents)
    done = shell("serve", "--port", "0", "--data-dir", "data", "--wal-shards", "1")
    assert done.code == 5
    (told,) = done.err.splitlines()
    assert "wal-0000000000000001.log at byte " in told
    assert "headwater repair" in told


def test_control_c_stops_it_as_politely_as_a_signal(shell: Shell) -> None:
    with shell.begin("serve", "--port", "0", "--log-json") as serving:
        assert serving.stdout is not None
        events: list[dict[str, object]] = []
        while not events or events[-1]["event"] != "listening":
            events.append(json.loads(serving.stdout.readline()))
        serving.send_signal(signal.SIGINT)
        assert json.loads(serving.stdout.readline()) == {"event": "stopped"}
        assert serving.wait(timeout=60) == 0
