"""NATS JetStream: the server as a process, and just enough of its protocol to ask and to check."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.log_under_test import WrongResultError
from bench.server.processes import ServerProcess
from headwater.core.units import GIB

INSTALL: Final = "apt-get install nats-server"
CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
SYNC_ALWAYS: Final = "sync_interval: always"
_WORDS_OF_A_MESSAGE: Final = 5
"""MSG subject sid reply size: with a reply; without one there are four."""


def has_nats() -> bool:
    return shutil.which("nats-server") is not None


class NatsServer(ServerProcess):
    """One node, streams in files. Syncs before it answers where its version can be told to."""

    name = "NATS JetStream"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.durability = "fsync" if self._understands(SYNC_ALWAYS) else "written, synced by timer"

    @property
    def command(self) -> list[str]:
        return ["nats-server", "-c", str(self._config)]

    @property
    def _config(self) -> Path:
        return self.directory / "nats.conf"

    def _understands(self, line: str) -> bool:
        """Asks the program itself: older ones know no such setting, and take the file without."""
        said = b""
        for lines in ([line], []):
            text = "\n".join([f'store_dir: "{self.directory / "store"}"', *lines])
            self._config.write_text(
                f"listen: 127.0.0.1:{self.port}\nmax_pending: {GIB}\njetstream {{\n{text}\n}}\n",
                encoding="utf-8",
            )
            asked = subprocess.run(
                ["nats-server", "-t", "-c", str(self._config)], capture_output=True, check=False
            )
            if asked.returncode == 0:
                return bool(lines)
            said = asked.stderr
        raise WrongResultError(f"nats-server refuses its settings: {said.decode()[:300]}")

    def is_ready(self) -> bool:
        with Nats(self.port) as nats:
            return "error" not in nats.request("$JS.API.INFO")

    def version(self) -> str:
        done = subprocess.run(
            ["nats-server", "--version"], capture_output=True, text=True, check=True
        )
        return f"{done.stdout.strip()}, {self.durability}"


class Nats:
    """One connection: requests out, answers in."""

    def __init__(self, port: int, inbox: str = "_INBOX.answers", timeout_s: float = 30) -> None:
        self._inbox = inbox.encode()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._file = self._socket.makefile("rb", 1 << 18)
        self._file.readline()  # INFO
        self._socket.sendall(b"%sSUB %s 1\r\nPING\r\n" % (CONNECT, self._inbox))
        while self._file.readline() != b"PONG\r\n":  # what it is subscribed to comes from here on
            pass

    def request(self, subject: str, body: Any = None) -> dict[str, Any]:
        text = b"" if body is None else json.dumps(body).encode()
        self._socket.sendall(
            b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), self._inbox, len(text), text)
        )
        found: dict[str, Any] = json.loads(self.message()[1])
        return found

    def message(self) -> tuple[bytes, bytes]:
        """The reply subject of the next message, and its payload."""
        while True:
            words = self._file.readline().split()
            if not words:
                raise EOFError("NATS went away")
            if words[0] == b"PING":
                self._socket.sendall(b"PONG\r\n")
            elif words[0] == b"MSG":
                size = int(words[-1])
                reply = words[3] if len(words) == _WORDS_OF_A_MESSAGE else b""
                return reply, self._file.read(size + 2)[:-2]
            elif words[0] == b"-ERR":
                raise WrongResultError(f"NATS: {b' '.join(words).decode()}")

    def __enter__(self) -> Nats:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()


def make_stream(port: int, name: str, subjects: str | None = None) -> None:
    with Nats(port) as nats:
        config = {
            "name": name,
            "subjects": [subjects or name],
            "storage": "file",
            "retention": "limits",
        }
        answer = nats.request(f"$JS.API.STREAM.CREATE.{name}", {**config, "num_replicas": 1})
    if "error" in answer:
        raise WrongResultError(f"NATS: {answer['error']}")


def nats_count(port: int, name: str) -> int:
    with Nats(port) as nats:
        return int(nats.request(f"$JS.API.STREAM.INFO.{name}")["state"]["messages"])


def nats_payloads(port: int, name: str) -> Iterator[bytes]:
    """Everything in the stream, message after message without a gap."""
    inbox = "_INBOX.records"
    with Nats(port, inbox) as records, Nats(port) as nats:
        config = {"deliver_subject": inbox, "ack_policy": "none", "deliver_policy": "all"}
        answer = nats.request(
            f"$JS.API.CONSUMER.CREATE.{name}", {"stream_name": name, "config": config}
        )
        if "error" in answer:
            raise WrongResultError(f"NATS: {answer['error']}")
        count = nats.request(f"$JS.API.STREAM.INFO.{name}")["state"]["messages"]
        for seq in range(1, count + 1):
            reply, payload = records.message()
            # $JS.ACK.<stream>.<consumer>.<deliveries>.<seq of the stream>.<...>.<...>.<pending>
            if int(reply.split(b".")[5]) != seq:
                raise WrongResultError(f"NATS: {reply!r} came, not message {seq}")
            yield payload
