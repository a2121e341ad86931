"""`headwater serve` with one fsync policy of the machines' log, and a connection to set it up."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from bench.log_under_test import WrongResultError
from bench.server.processes import HeadwaterServer
from headwater.wire.rcpx import MessageReader, frame

MACHINE = "turnstile"
DEFINITION = {
    "states": ["locked", "open"],
    "initial": "locked",
    "transitions": [
        {"from": "locked", "event": "COIN", "to": "open", "guard": "ctx.coins < 1000000000"},
        {"from": "open", "event": "COIN", "to": "open"},
        {"from": "open", "event": "PUSH", "to": "locked"},
    ],
}
BATCH = 100


class MachineServer(HeadwaterServer):
    def __init__(self, directory: Path, fsync_policy: str) -> None:
        super().__init__(directory)
        self.fsync_policy = fsync_policy
        self.rcpx_port = 0

    @property
    def command(self) -> list[str]:
        config = self.directory / "config.toml"
        config.write_text(f'machine_fsync_policy = "{self.fsync_policy}"\n', encoding="utf-8")
        return [*super().command, "--rcpx-port", "0", "--config", str(config)]

    def is_ready(self) -> bool:
        if not super().is_ready():
            return False
        self.rcpx_port = json.loads(self._port_file.read_text(encoding="utf-8"))["rcpx"]
        return True


class Rcpx:
    """One connection that waits for every answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=300)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = MessageReader()
        self.ask("HELLO", protocol_version=1)

    def __enter__(self) -> Rcpx:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, op: str, **params: Any) -> dict[str, Any]:
        request = {"type": "request", "id": "1", "op": op, "params": params}
        self._socket.sendall(frame(json.dumps(request).encode()))
        while (found := self._reader.next_message()) is None:
            data = self._socket.recv(262_144)
            if not data:
                raise WrongResultError(f"the server ended the connection after {op}")
            self._reader.feed(data)
        answer = json.loads(found)
        if answer["status"] != "ok":
            raise WrongResultError(f"{op}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def define(self) -> None:
        self.ask("PUT_MACHINE", machine=MACHINE, version=1, definition=DEFINITION)

    def create(self, first: int, count: int, context: dict[str, Any]) -> None:
        """Instances by number, a hundred at a time, all or nothing."""
        for begin in range(first, first + count, BATCH):
            ops = [
                {
                    "op": "CREATE_INSTANCE",
                    "params": {
                        "machine": MACHINE,
                        "version": 1,
                        "instance_id": f"t-{number:09d}",
                        "initial_ctx": context,
                    },
                }
                for number in range(begin, min(begin + BATCH, first + count))
            ]
            self.ask("BATCH", mode="atomic", ops=ops)
