"""What somebody does wrong in the first five minutes is answered with what to do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.e2e.cli.conftest import SCRIPT, Shell
from tests.rig.server_process import ServerProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not SCRIPT.exists(), reason="the package is not installed as a script"),
]


def told(shell: Shell, *words: str) -> tuple[int, str]:
    done = shell(*words)
    assert done.out == ""
    (line,) = done.err.splitlines()
    return done.code, line.removeprefix("headwater: ")


@contextmanager
def somebody_else() -> Iterator[int]:
    """A web server that is not ours, and answers everything with 501."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        BaseHTTPRequestHandler.log_message = lambda *_: None  # type: ignore[method-assign]
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            yield other.server_port
        finally:
            other.shutdown()
            thread.join()


def test_a_server_that_does_not_run_is_told_with_how_to_start_one(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    code, line = told(shell, "read", "orders", "--url", "http://127.0.0.1:1")
    assert code == 3
    assert line == (
        "cannot reach http://127.0.0.1:1 (connection refused); is the server running? "
        "`headwater serve` starts one"
    )


def test_the_address_of_another_server_is_told_with_where_it_came_from(tmp_path: Path) -> None:
    with somebody_else() as port:
        code, line = told(Shell(tmp_path), "read", "orders", "--url", f"http://127.0.0.1:{port}")
    assert code == 2
    assert line == (
        "this does not look like a Headwater server: it answered 501; check the address: "
        "--url, HEADWATER_URL or the context in use"
    )


def test_tls_to_a_server_without_it_is_told_as_that(shell: Shell, shared: ServerProcess) -> None:
    secure = shared.url.replace("http://", "https://")
    code, line = told(shell, "read", "orders", "--url", secure)
    assert code == 2
    assert line == f"{secure} does not speak TLS; try {shared.url}"


def test_a_missing_and_a_wrong_key_are_told_with_where_to_put_one(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", HEADWATER_API_KEYS="the-right-secret") as server:
        shell = Shell(tmp_path, HEADWATER_URL=server.url)
        places = "give one with HEADWATER_TOKEN, --token or `headwater context add`"
        assert told(shell, "read", "orders") == (2, f"a bearer key is needed; {places}")
        wrong = told(shell, "read", "orders", "--token", "the-wrong-secret")
        assert wrong == (2, f"this key is not known; {places}")


def test_the_port_of_another_kafka_is_told_in_plain_words(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = Shell(tmp_path)("serve", "--port", "0", "--kafka-port", port, "--rcpx-port", "off")
    assert done.code == 5
    assert done.err == (
        f"headwater: cannot listen for Kafka clients on 127.0.0.1:{port} (address already in "
        "use); choose another --kafka-port, 0 for a free one, or off\n"
    )


@pytest.mark.parametrize("verb", [["write"], ["topic", "create"]], ids=" ".join)
def test_a_forgotten_value_points_at_the_help_of_its_verb(tmp_path: Path, verb: list[str]) -> None:
    option = "--tag" if verb == ["write"] else "--type"
    code, line = told(Shell(tmp_path), *verb, "orders", option)
    assert code == 2
    path = " ".join(["headwater", *verb])
    assert line == f"option '{option}' requires an argument; see `{path} --help`"


def test_help_shows_no_type_beside_a_switch(tmp_path: Path) -> None:
    for verb in ([], ["write"], ["topic"], ["topic", "create"]):
        text = Shell(tmp_path).good(*verb, "--help")
        assert "--help" in text
        assert "<bool>" not in text
