"""Workers that produce a batch, claim a batch and ack it, over and over, in a process of their own.

    python -m bench.queue.workers KIND PORT TOPIC WORKERS BATCH SECONDS

One loop drives all connections, so what it costs is the same for both kinds. After the time is up
nobody produces any more and the rest is worked off; then every job must have been acked exactly
once. Prints one line of JSON.
"""

from __future__ import annotations

import json
import re
import select
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from bench.log_under_test import WrongResultError
from bench.payloads import PAYLOADS
from bench.server.clients import FIELD, Http, Redis, encode_command
from bench.server.load import Load
from bench.server.processes import ServerProcess
from bench.turns import percentile
from headwater.core.units import KIB

GROUP: Final = "workers"
_arrived: Final = memoryview(bytearray(256 * KIB))
"""Where all connections receive: a new megabyte for each answer was half of what this cost."""
clock = time.perf_counter


class Cycler(ABC):
    """One worker on one connection: one request at a time."""

    def __init__(self, port: int, topic: str, number: int, batch: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(None)  # with one, every call asks the kernel twice
        self.topic = topic
        self.node = f"w{number}"
        self.batch = batch
        self.produced = 0
        self.done: list[bytes] = []
        self.claim_us: list[float] = []
        self.idle = False
        self._held: list[bytes] = []
        self._received = bytearray()
        self._sent = 0.0
        self._step = self.ask_produce

    @abstractmethod
    def produce_request(self) -> bytes: ...

    @abstractmethod
    def claim_request(self) -> bytes: ...

    @abstractmethod
    def ack_request(self, jobs: list[bytes]) -> bytes: ...

    @abstractmethod
    def take_answer(self, received: bytearray) -> bytes | None:
        """A whole answer, checked; None while some of it is missing."""

    @abstractmethod
    def jobs_of(self, answer: bytes) -> list[bytes]: ...

    @abstractmethod
    def acked_of(self, answer: bytes) -> int: ...

    # -- produce, claim, ack

    def begin(self, *, produce: bool) -> None:
        self.idle = False
        (self.ask_produce if produce else self.ask_claim)()

    def ask_produce(self) -> None:
        self._send(self.produce_request(), self.ask_produce)

    def ask_claim(self) -> None:
        self._sent = clock()
        self._send(self.claim_request(), self.ask_claim)

    def ask_ack(self) -> None:
        self._send(self.ack_request(self._held), self.ask_ack)

    def _send(self, request: bytes, step: object) -> None:
        self._step = step  # type: ignore[assignment]
        self.socket.sendall(request)

    def read(self, *, over: bool) -> None:
        """Something came; when it is all there, the next request goes out."""
        size = self.socket.recv_into(_arrived)
        if not size:
            raise WrongResultError("the server closed a connection")
        self._received += _arrived[:size]
        answer = self.take_answer(self._received)
        if answer is None:
            return
        self._received = bytearray()
        if self._step == self.ask_produce:
            self.produced += self.batch
            self.ask_claim()
        elif self._step == self.ask_claim:
            self.claim_us.append((clock() - self._sent) * 1e6)
            self._held = self.jobs_of(answer)
            if self._held:
                self.ask_ack()
            elif over:
                self.idle = True
            else:
                self.ask_produce()
        else:
            if self.acked_of(answer) != len(self._held):
                raise WrongResultError(f"acked {self.acked_of(answer)} of {len(self._held)}")
            self.done += self._held
            if over:
                self.ask_claim()
            else:
                self.ask_produce()


_SEQ: Final = re.compile(rb'"\$seq":(\d+)')
_LEASE: Final = re.compile(rb'"lease_id":(\d+)')
_LENGTH: Final = re.compile(rb"content-length: (\d+)")
_ACKED: Final = re.compile(rb'"acked":(\d+)')


class HeadwaterCycler(Cycler):
    def __init__(self, port: int, topic: str, number: int, batch: int) -> None:
        super().__init__(port, topic, number, batch)
        records = b",".join(
            b'{"data":%s}' % PAYLOADS[at % 1000] for at in range(number, number + batch)
        )
        self._produce = self._post(b"?return_seqs=false", b'{"records":[%s]}' % records)
        self._claim = self._post(b"/claim", b'{"node":"%s","max":%d}' % (self.node.encode(), batch))
        self._lease = b""

    def _post(self, path: bytes, body: bytes) -> bytes:
        head = b"POST /v0/topics/%s%s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        return head % (self.topic.encode(), path) + b"content-length: %d\r\n\r\n%s" % (
            len(body),
            body,
        )

    def produce_request(self) -> bytes:
        return self._produce

    def claim_request(self) -> bytes:
        return self._claim

    def ack_request(self, jobs: list[bytes]) -> bytes:
        leases = b",".join([self._lease] * len(jobs))
        return self._post(
            b"/ack",
            b'{"node":"%s","seqs":[%s],"lease_ids":[%s]}'
            % (self.node.encode(), b",".join(jobs), leases),
        )

    def take_answer(self, received: bytearray) -> bytes | None:
        end = received.find(b"\r\n\r\n")
        if end < 0:
            return None
        length = _LENGTH.search(received, 0, end)
        if length is None or len(received) < end + 4 + int(length[1]):
            return None
        if not received.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
            raise WrongResultError(f"refused: {bytes(received[:400])!r}")
        return bytes(received[end + 4 :])

    def jobs_of(self, answer: bytes) -> list[bytes]:
        lease = _LEASE.search(answer)
        self._lease = lease[1] if lease is not None else b""
        return _SEQ.findall(answer)

    def acked_of(self, answer: bytes) -> int:
        found = _ACKED.search(answer)
        return int(found[1]) if found is not None else 0


_ID: Final = re.compile(rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n")
_PONG: Final = b"+PONG\r\n"


class RedisCycler(Cycler):
    """What ends an answer of unknown length is the answer to a PING behind it."""

    def __init__(self, port: int, topic: str, number: int, batch: int) -> None:
        super().__init__(port, topic, number, batch)
        ping = encode_command("PING")
        payloads = [PAYLOADS[at % 1000] for at in range(number, number + batch)]
        adds = b"".join(encode_command("XADD", topic, "*", FIELD, each) for each in payloads)
        self._produce = adds + ping
        self._claim = (
            encode_command(
                *("XREADGROUP", "GROUP", GROUP, self.node, "COUNT", batch, "STREAMS", topic, ">")
            )
            + ping
        )

    def produce_request(self) -> bytes:
        return self._produce

    def claim_request(self) -> bytes:
        return self._claim

    def ack_request(self, jobs: list[bytes]) -> bytes:
        return encode_command("XACK", self.topic, GROUP, *jobs) + encode_command("PING")

    def take_answer(self, received: bytearray) -> bytes | None:
        if not received.endswith(_PONG):
            return None
        if received.startswith(b"-"):
            raise WrongResultError(f"refused: {bytes(received[:400])!r}")
        return bytes(received)

    def jobs_of(self, answer: bytes) -> list[bytes]:
        return _ID.findall(answer)

    def acked_of(self, answer: bytes) -> int:
        return int(answer[1 : answer.index(b"\r\n")])


CYCLERS: dict[str, type[Cycler]] = {"headwater": HeadwaterCycler, "redis": RedisCycler}


def prepare(kind: str, port: int, topic: str) -> None:
    if kind == "redis":
        with Redis(port) as redis:
            redis.call("XGROUP", "CREATE", topic, GROUP, "$", "MKSTREAM")
    else:
        with Http(port) as http:
            http.call("PUT", f"/v0/topics/{topic}", {"type": "queue"})


def check_empty(kind: str, port: int, topic: str) -> None:
    if kind == "redis":
        with Redis(port) as redis:
            left = redis.call("XPENDING", topic, GROUP)[0]
    else:
        with Http(port) as http:
            left = http.call("GET", f"/v0/topics/{topic}")["count"]
    if left:
        raise WrongResultError(f"{left} jobs were left over")


def cycle(workers: list[Cycler], seconds: float) -> float:
    """How long it took until the last job was acked."""
    poll = select.epoll()
    by_file = {worker.socket.fileno(): worker for worker in workers}
    for number in by_file:
        poll.register(number, select.EPOLLIN)
    started = clock()
    deadline = started + seconds
    for worker in workers:
        worker.begin(produce=True)
    ended = started
    while True:
        over = clock() >= deadline
        for number, _ in poll.poll(1):
            by_file[number].read(over=over)
        if over and all(worker.idle for worker in workers):
            # Somebody may have produced after another one looked: a last round finds it.
            if sum(w.produced for w in workers) == sum(len(w.done) for w in workers):
                return ended - started
            for worker in workers:
                worker.begin(produce=False)
        ended = clock()


def main(kind: str, port: str, topic: str, workers: str, batch: str, seconds: str) -> None:
    prepare(kind, int(port), topic)
    made = [CYCLERS[kind](int(port), topic, n, int(batch)) for n in range(int(workers))]
    started_cpu_s = time.process_time()
    elapsed_s = cycle(made, float(seconds))
    generator_s = time.process_time() - started_cpu_s
    done = [job for worker in made for job in worker.done]
    produced = sum(worker.produced for worker in made)
    if len(done) != produced or len(set(done)) != produced:
        raise WrongResultError(f"{produced} jobs, {len(done)} acks of {len(set(done))} jobs")
    check_empty(kind, int(port), topic)
    claims = [us for worker in made for us in worker.claim_us]
    told = {
        "jobs": produced,
        "elapsed_s": elapsed_s,
        "p50_us": percentile(claims, 50),
        "p99_us": percentile(claims, 99),
        "generator_us": generator_s / max(produced, 1) * 1e6,
        "least": min(len(worker.done) for worker in made),
        "most": max(len(worker.done) for worker in made),
    }
    print(json.dumps(told))


class QueueWorkers:
    """A contender: so many workers on this server. Every turn has a queue of its own."""

    def __init__(self, server: ServerProcess, workers: int, batch: int) -> None:
        self._server = server
        self._workers = workers
        self._batch = batch
        self._turns = 0
        self.shares: list[str] = []
        """The smallest and the largest part a worker had in each turn."""
        self.generator_us: list[float] = []
        """CPU of the workers for each job, in each turn: not to be what is measured."""

    def command(self, seconds: float) -> list[str]:
        topic = f"jobs-{self._workers}-{self._batch}-{self._turns}"
        words = ("-m", "bench.queue.workers", self._server.name.lower(), str(self._server.port))
        return [
            *(sys.executable, *words, topic),
            *(str(self._workers), str(self._batch), str(seconds)),
        ]

    def __call__(self, seconds: float) -> Load:
        self._turns += 1
        before = self._server.cpu_s()
        done = subprocess.run(
            self.command(seconds),
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode:
            raise WrongResultError(f"{self._server.name}: {done.stderr[-800:]}")
        told = json.loads(done.stdout)
        self.shares.append(f"{told['least']:,} to {told['most']:,}")
        self.generator_us.append(told["generator_us"])
        cpu_s = self._server.cpu_s() - before
        return Load(told["jobs"], told["elapsed_s"], cpu_s, told["p50_us"], told["p99_us"])


if __name__ == "__main__":
    main(*sys.argv[1:])
