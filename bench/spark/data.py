"""The rows that are read: a topic, and the same rows as JSON lines and as Parquet."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

import headwater
from bench.payloads import PAYLOAD_BYTES

TOPIC: Final = "orders"
TAGS: Final = 16
NODE: Final = "web-1"
BATCH: Final = 10_000
FILES: Final = 8
"""As many files of JSON and of Parquet: what a job of this size would write."""


def order(number: int) -> bytes:
    """A payload of exactly 200 bytes that does not shrink to nothing in a compressed table."""
    event = {"id": number, "kind": "order.placed", "amount": number % 9973, "note": ""}
    room = PAYLOAD_BYTES - len(msgspec.json.encode(event))
    noise = hashlib.shake_128(number.to_bytes(8)).hexdigest(room // 2 + 1)
    event["note"] = noise[:room]
    return msgspec.json.encode(event)


def records_from(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"data": msgspec.Raw(order(number)), "tag": f"tag-{number % TAGS}"}
        for number in range(first, first + count)
    ]


def fill_topic(directory: Path, count: int) -> Path:
    """A stopped data directory with one topic."""
    with headwater.open(directory) as db:
        for first in range(0, count, BATCH):
            db.append(TOPIC, records_from(first, min(BATCH, count - first)), node=NODE)
    return directory


@dataclass(frozen=True, slots=True)
class Expected:
    """What every way of reading must find."""

    records: int

    @property
    def amount(self) -> int:
        return sum(number % 9973 for number in range(self.records))

    @property
    def tags(self) -> dict[str, int]:
        counts = [self.records // TAGS + (tag < self.records % TAGS) for tag in range(TAGS)]
        return {f"tag-{tag}": count for tag, count in enumerate(counts) if count}


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def payload_note() -> str:
    return f"{PAYLOAD_BYTES} B"
