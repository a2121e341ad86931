"""Just enough HTTP and RESP to prepare, ask and check. Not for load: that is made elsewhere."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import xxhash

from bench.log_under_test import WrongResultError
from bench.payloads import PAYLOADS

TOPIC: Final = "bench"
FIELD: Final = "d"
PAGE: Final = 1_000


class Http:
    """One connection to Headwater."""

    def __init__(self, port: int, timeout_s: float = 60) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)

    def raw(self, method: str, path: str, body: Any = None) -> bytes:
        text = None if body is None else json.dumps(body)
        headers = {} if body is None else {"content-type": "application/json"}
        self._connection.request(method, path, text, headers)
        answer = self._connection.getresponse()
        read = answer.read()
        if answer.status >= 300:
            raise ValueError(f"{method} {path}: {answer.status} {read[:300]!r}")
        return read

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.raw(method, path, body))
        return found

    def __enter__(self) -> Http:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


class _Read(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    data: msgspec.Raw = msgspec.field()


class _Page(msgspec.Struct):
    records: list[_Read]
    next_from_seq: int
    caught_up: bool


_decode_page = msgspec.json.Decoder(_Page).decode


class RedisError(ValueError):
    """Redis answered with an error."""


class Redis:
    """One connection to Redis: commands out, replies in, in order."""

    def __init__(self, port: int, timeout_s: float = 60) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._file = self._socket.makefile("rb", 1 << 18)

    def call(self, *words: str | bytes | int) -> Any:
        self.send(*words)
        return self.reply()

    def send(self, *words: str | bytes | int) -> None:
        self._socket.sendall(encode_command(*words))

    def send_many(self, commands: bytes) -> None:
        self._socket.sendall(commands)

    def reply(self) -> Any:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError("Redis went away")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            raise RedisError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._file.read(int(rest) + 2)[:-2]
        return [self.reply() for _ in range(int(rest))]

    def __enter__(self) -> Redis:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()


def encode_command(*words: str | bytes | int) -> bytes:
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def fill_redis(port: int, records: int) -> None:
    """The payloads that `bench.embedded.fill` writes, in pipelines of a thousand."""
    with Redis(port) as redis:
        for first in range(1, records + 1, PAGE):
            seqs = range(first, min(first + PAGE, records + 1))
            redis.send_many(
                b"".join(
                    encode_command("XADD", TOPIC, "*", FIELD, PAYLOADS[seq % 1000]) for seq in seqs
                )
            )
            for _ in seqs:
                redis.reply()


def headwater_payloads(port: int, topic: str = TOPIC) -> Iterator[bytes]:
    """Everything in a topic, seq after seq without a gap, as the bytes that were sent."""
    from_seq = 0
    with Http(port) as http:
        while True:
            body = {"from_seq": from_seq, "limit": PAGE}
            page = _decode_page(http.raw("POST", f"/v0/topics/{topic}/diff", body))
            for record in page.records:
                from_seq += 1
                if record.seq != from_seq:
                    raise WrongResultError(f"{topic}: seq {record.seq} came, not {from_seq}")
                yield bytes(record.data)
            if page.caught_up:
                return


def redis_payloads(port: int, topic: str = TOPIC) -> Iterator[bytes]:
    """Everything in the stream."""
    with Redis(port) as redis:
        last = b"-"
        while True:
            entries = redis.call("XRANGE", topic, last, "+", "COUNT", PAGE)
            for _, (_, payload) in entries:
                yield payload
            if len(entries) < PAGE:
                return
            last = b"(" + entries[-1][0]


def digest(payloads: Iterator[bytes]) -> tuple[int, str]:
    """How many, and a hash over all of them in order."""
    count, running = 0, xxhash.xxh3_64()
    for payload in payloads:
        count += 1
        running.update(payload)
    return count, running.hexdigest()


def expected_digest(records: int) -> tuple[int, str]:
    return digest(PAYLOADS[seq % 1000] for seq in range(1, records + 1))


def check_known(payloads: Iterator[bytes], at_least: int, at_most: int, whose: str) -> None:
    """What is there was sent, and every acknowledged record is there."""
    known = set(PAYLOADS)
    count = 0
    for count, payload in enumerate(payloads, 1):
        if payload not in known:
            raise WrongResultError(f"{whose}: record {count} was never sent: {payload[:60]!r}")
    if not at_least <= count <= at_most:
        raise WrongResultError(f"{whose}: {count} records, {at_least} to {at_most} were sent")
