"""Connections that each send one event, wait for its answer, and send the next: what a request
costs a caller.

One thread on plain sockets and epoll, with requests made before: it shares the machine with the
server, so what it takes is not there for what is measured.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from headwater.wire.rcpx.frame import HEADER, frame

_unpack = HEADER.packer.unpack_from
_LENGTH = b"content-length: "
READ_BYTES = 65_536
QUIET_S = 10.0
"""Nobody answers for so long: the server is stuck, and that is said."""


def rcpx_request(op: str, **params: Any) -> bytes:
    return frame(json.dumps({"type": "request", "id": "1", "op": op, "params": params}).encode())


def rcpx_event(number: int) -> bytes:
    return rcpx_request(
        "APPLY_EVENT", instance_id=_name(number), event="COIN", payload={"last": number}
    )


def http_event(number: int) -> bytes:
    body = json.dumps({"event": "COIN", "payload": {"last": number}}).encode()
    head = (
        f"POST /v0/instances/{_name(number)}/events HTTP/1.1\r\nhost: b\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _name(number: int) -> str:
    return f"t-{number:09d}"


def rcpx_is_whole(answer: bytes) -> bool:
    return len(answer) >= HEADER.size and len(answer) == HEADER.size + _unpack(answer)[4]


def http_is_whole(answer: bytes) -> bool:
    head_ends = answer.find(b"\r\n\r\n")
    if head_ends < 0:
        return False
    at = answer.index(_LENGTH) + len(_LENGTH)
    return len(answer) == head_ends + 4 + int(answer[at : answer.index(b"\r", at)])


EVENTS: dict[str, tuple[Callable[[int], bytes], Callable[[bytes], bool]]] = {
    "rcpx": (rcpx_event, rcpx_is_whole),
    "http": (http_event, http_is_whole),
}


class Caller:
    """One connection."""

    def __init__(self, kind: str, port: int, number: int) -> None:
        make, self._is_whole = EVENTS[kind]
        self._request = make(number)
        self._parts = b""
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sent_s = 0.0
        self.fileno = self._socket.fileno
        self.close = self._socket.close
        if kind == "rcpx":
            self._socket.sendall(rcpx_request("HELLO", protocol_version=1))
            while not rcpx_is_whole(self._parts):
                self._parts += self._socket.recv(READ_BYTES)
            self._parts = b""

    def send(self) -> None:
        self._sent_s = time.perf_counter()
        self._socket.send(self._request)

    def hear(self) -> bytes | None:
        """The answer, once all of it is here."""
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the server ended a connection")
        if self._parts:
            data = self._parts + data
        if not self._is_whole(data):
            self._parts = data
            return None
        self._parts = b""
        return data

    def waited_us(self) -> float:
        return (time.perf_counter() - self._sent_s) * 1e6


def run_events(kind: str, port: int, connections: int, seconds: float) -> dict[str, Any]:
    callers = {}
    poll = select.epoll()
    for number in range(connections):
        caller = Caller(kind, port, number)
        callers[caller.fileno()] = caller
        poll.register(caller.fileno(), select.EPOLLIN)
    latencies_us: list[float] = []
    refused, waiting = 0, connections
    started, spent_s = time.perf_counter(), time.process_time()
    until = started + seconds
    for caller in callers.values():
        caller.send()
    while waiting:
        ready = poll.poll(QUIET_S)
        if not ready:
            raise TimeoutError(f"no answer for {QUIET_S} s; {waiting} are waited for")
        goes_on = time.perf_counter() < until
        for number, _ in ready:
            caller = callers[number]
            answer = caller.hear()
            if answer is None:
                continue
            latencies_us.append(caller.waited_us())
            if b'"to_state"' not in answer:
                refused += 1
            if goes_on:
                caller.send()
            else:
                waiting -= 1
    elapsed_s, cpu_s = time.perf_counter() - started, time.process_time() - spent_s
    for caller in callers.values():
        caller.close()
    return {**summary(latencies_us, refused, elapsed_s), "cpu_s": cpu_s}


def summary(latencies_us: list[float], refused: int, elapsed_s: float) -> dict[str, Any]:
    found = sorted(latencies_us)
    return {
        "operations": len(found),
        "refused": refused,
        "elapsed_s": elapsed_s,
        "p50_us": found[len(found) // 2] if found else 0.0,
        "p99_us": found[int(len(found) * 0.99)] if found else 0.0,
    }
