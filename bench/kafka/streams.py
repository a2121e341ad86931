"""Redis Streams as the peer where there is no Apache Kafka: pipelines of XADD, pages of XRANGE."""

from __future__ import annotations

import time
from typing import Any, Final

from bench.kafka.load import NUMBER_BYTES, filler
from bench.server.clients import Redis, encode_command

PIPELINE: Final = 100
PAGE: Final = 1_000
clock = time.perf_counter


def produce(port: str, topic: str, size: int, count: int) -> dict[str, Any]:
    rest = filler(size)
    with Redis(int(port)) as redis:
        began = clock()
        for start in range(0, count, PIPELINE):
            numbers = range(start, min(start + PIPELINE, count))
            redis.send_many(
                b"".join(
                    encode_command("XADD", topic, "*", "d", n.to_bytes(NUMBER_BYTES, "big") + rest)
                    for n in numbers
                )
            )
            for _ in numbers:
                redis.reply()
        return {"elapsed_s": clock() - began, "operations": count, "failed": [], "left": 0}


def consume(port: str, topic: str, _size: int, count: int) -> dict[str, Any]:
    seen = wrong = 0
    cursor: bytes | str = "-"
    with Redis(int(port)) as redis:
        began = clock()
        while seen < count:
            page = redis.call("XRANGE", topic, cursor, "+", "COUNT", PAGE)
            if not page:
                break
            for _entry, (_field, value) in page:
                wrong += int.from_bytes(value[:NUMBER_BYTES], "big") != seen
                seen += 1
            cursor = b"(" + page[-1][0]
        elapsed = clock() - began
    return {"elapsed_s": elapsed, "operations": seen, "failed": ["out of order"][: bool(wrong)],
            "left": count - seen}  # fmt: skip
