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

from headwater.wire.rcpx import HEADER, frame

_unpack = HEADER.packer.unpack_from
_LENGTH = b"content-length: "
_APPLIED = b'"applied":true'
READ_BYTES = 4_096
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


def _connected(kind: str, port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if kind == "rcpx":
        made.sendall(rcpx_request("HELLO", protocol_version=1))
        answer = b""
        while not rcpx_is_whole(answer):
            answer += made.recv(READ_BYTES)
    return made


def run_events(kind: str, port: int, connections: int, seconds: float) -> dict[str, Any]:
    """Everything of a connection in one flat row, and no call but those to the kernel where all
    of an answer came at once, as it does: the loop costs less than the system calls in it."""
    make, is_whole = EVENTS[kind]
    sockets = [_connected(kind, port) for _ in range(connections)]
    rows = {
        each.fileno(): (each.send, each.recv, make(number)) for number, each in enumerate(sockets)
    }
    poll = select.epoll()
    for descriptor in rows:
        poll.register(descriptor, select.EPOLLIN)
    parts: dict[int, bytes] = {}
    sent_s: dict[int, float] = {}
    latencies_s: list[float] = []
    refused, waiting, now_s = 0, connections, time.perf_counter
    started, spent_s = now_s(), time.process_time()
    until = started + seconds
    for descriptor, (send, _, request) in rows.items():
        sent_s[descriptor] = now_s()
        send(request)
    while waiting:
        ready = poll.poll(QUIET_S)
        if not ready:
            raise TimeoutError(f"no answer for {QUIET_S} s; {waiting} are waited for")
        goes_on = now_s() < until
        for descriptor, _ in ready:
            send, recv, request = rows[descriptor]
            answer = recv(READ_BYTES)
            if not answer:
                raise ConnectionError("the server ended a connection")
            if parts:
                answer = parts.pop(descriptor, b"") + answer
            if not is_whole(answer):
                parts[descriptor] = answer
                continue
            at = now_s()
            latencies_s.append(at - sent_s[descriptor])
            if _APPLIED not in answer:
                refused += 1
            if goes_on:
                sent_s[descriptor] = at
                send(request)
            else:
                waiting -= 1
    elapsed_s, cpu_s = now_s() - started, time.process_time() - spent_s
    for each in sockets:
        each.close()
    latencies_us = [each * 1e6 for each in latencies_s]
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
