"""kill -9 of a gateway or of the sequencer under load: what was acked is there, once and in order.

Clients write on, each to a topic of its own, and note what they were answered. Half of them give
every write a key and repeat it until it is acked; the others go on to the next value when the
outcome of one is unknown. A client of a gateway that lives keeps its connection, whatever happens
to the sequencer.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from headwater.core.clock import SystemClock
from tests.crash.matrix import FULL, tried
from tests.rig.server_process import ServerProcess
from tests.server.raw_http import RawHttp
from tests.server.running_server import eventually

ROUNDS = 200 if FULL else 6
CLIENTS = 8
GATEWAYS = 2
ACKS_A_ROUND = 3
"""Of each client, between two kills."""

pytestmark = [pytest.mark.crash, pytest.mark.e2e]


@dataclass
class Client:
    """Writes 0, 1, 2 and so on, until it is told to stop."""

    port: int
    number: int
    acked: dict[int, int] = field(default_factory=dict)
    """Value by seq, as the answers said."""
    sent: int = 0
    connections: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None

    @property
    def topic(self) -> str:
        return f"t{self.number}"

    def has(self, acks: int) -> bool:
        assert self.failure is None, self.failure
        return len(self.acked) >= acks

    @property
    def repeats(self) -> bool:
        return self.number % 2 == 0

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self._use_connection()
        except BaseException as failure:
            self.failure = failure

    def _use_connection(self) -> None:
        try:
            with RawHttp("127.0.0.1", self.port) as http:
                self.connections += 1
                while not self.stopping.is_set():
                    self._write(http)
        except ConnectionError:
            self._is_unknown()

    def _write(self, http: RawHttp) -> None:
        headers = {"idempotency-key": f"{self.number}-{self.sent}"} if self.repeats else {}
        body = {"records": [{"data": self.sent}]}
        answer = http.ask("POST", f"/v0/topics/{self.topic}", body, headers)
        if answer.status in (200, 201):
            self.acked[answer.json["first_seq"]] = self.sent
            self.sent += 1
        else:
            assert answer.status == 503, answer
            assert answer.headers["retry-after"] == "1"
            if answer.code == "no_answer":
                self._is_unknown()
            else:  # nothing was done, so the same value may come again
                assert answer.code == "not_ready", answer
            self.stopping.wait(0.01)

    def _is_unknown(self) -> None:
        if not self.repeats:
            self.sent += 1

    def check(self, http: RawHttp) -> None:
        found: dict[int, int] = {}
        from_seq = 0
        while True:
            page = http.diff(self.topic, from_seq, limit=1_000).json
            found |= {record["$seq"]: record["data"] for record in page["records"]}
            if page["caught_up"]:
                break
            from_seq = page["next_from_seq"]
        assert list(found) == list(range(1, len(found) + 1)), "seqs have holes"
        values = list(found.values())
        assert values == sorted(set(values)), "written twice, or out of order"
        assert self.acked.items() <= found.items(), "what was acked is not there"
        if self.repeats:
            assert values == list(range(self.sent)) or values == list(range(self.sent + 1))


def kill_one(server: ServerProcess, chance: random.Random) -> bool:
    """True when it was the sequencer."""
    sequencer, gateways = server.roles
    is_sequencer = chance.random() < 0.5
    pid = sequencer if is_sequencer else chance.choice(gateways)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: pid not in server.children and len(server.children) == GATEWAYS + 1)
    return is_sequencer


@pytest.mark.timeout(0 if FULL else 120)
def test_acked_writes_outlive_kills_of_gateways_and_sequencers(tmp_path: Path) -> None:
    chance = random.Random(SystemClock().wall_ms() if FULL else 20)
    flags = ("--workers", str(GATEWAYS))
    with ServerProcess(tmp_path / "data", *flags) as server:
        clients = [Client(server.port, number) for number in range(CLIENTS)]
        threads = [threading.Thread(target=client.run) for client in clients]
        for thread in threads:
            thread.start()
        try:
            for client in clients:
                eventually(partial(client.has, 1))
            for _ in range(ROUNDS):
                before = [client.connections for client in clients]
                was_sequencer = kill_one(server, chance)
                for client in clients:
                    goal = len(client.acked) + ACKS_A_ROUND
                    eventually(partial(client.has, goal))
                if was_sequencer:
                    assert [client.connections for client in clients] == before
                tried("kills of workers under load")
        finally:
            for client in clients:
                client.stopping.set()
            for thread in threads:
                thread.join(30)
        assert not [client.failure for client in clients if client.failure is not None]
        server.restart(kill=True)
        with RawHttp("127.0.0.1", server.port) as http:
            for client in clients:
                client.check(http)
        assert server.stop() == 0
