"""A database opened for measuring: filling it, walking it, and the check that it holds its records.

Record `seq` of a topic holds payload number `seq % 1000`, so that any record can be checked alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

import headwater
from bench.log_under_test import WrongResultError
from bench.payloads import PAYLOAD_BYTES, PAYLOADS
from bench.registry import Run
from headwater.config.engine import EngineSettings
from headwater.config.wal import WalSettings
from headwater.core.errors import OverloadedError
from headwater.core.records import Record
from headwater.core.results import Tombstone

DATA: Final[list[dict[str, Any]]] = [msgspec.json.decode(payload) for payload in PAYLOADS]
"""Python objects, as a program has them; turning them into JSON is part of an append."""
PAGE: Final = 1_000
TOPIC: Final = "events"
TRIES: Final = 600


def settings_for(run: Run) -> EngineSettings:
    """The defaults; a quick run has shorter log files, because zeros take time."""
    return settings_with(run.file_bytes)


def settings_with(file_bytes: int) -> EngineSettings:
    return EngineSettings(wal=WalSettings(file_bytes=file_bytes))


def roomy(settings: EngineSettings, topics: int) -> EngineSettings:
    return replace(settings, topics_max=max(settings.topics_max, topics))


def told(durability: str, **more: object) -> dict[str, str]:
    """Conditions of a row."""
    plain = {name.replace("_", " "): str(value) for name, value in more.items()}
    return {"payload": f"{PAYLOAD_BYTES} B", "durability": durability, **plain}


def batch_from(first_seq: int, count: int) -> list[dict[str, Any]]:
    return [{"data": DATA[seq % 1000]} for seq in range(first_seq, first_seq + count)]


def fill(database: headwater.Database, records: int, topic: str = TOPIC, *, tags: int = 0) -> None:
    """Append until the topic has so many records. With `tags`, record n has `user-<n % tags>`."""
    head = 0
    if any(state.topic == topic for state in database.topics(topic)):
        head = database.state(topic).head_seq
    else:
        database.create(topic)
    while head < records:
        batch = batch_from(head + 1, min(PAGE, records - head))
        if tags:
            for seq, record in enumerate(batch, head + 1):
                record["tag"] = f"user-{seq % tags}"
        head = _append(database, topic, batch)


def _append(database: headwater.Database, topic: str, batch: list[dict[str, Any]]) -> int:
    """As a program does that has more than the disk takes: told to come later, it does."""
    for _ in range(TRIES):
        try:
            return database.append(topic, batch).head_seq
        except OverloadedError as error:
            time.sleep(error.retry_after_ms / 1000)
    raise WrongResultError(f"{topic}: nothing was taken in {TRIES} tries")


def walk(
    database: headwater.Database, topic: str = TOPIC, from_seq: int = 0, **options: Any
) -> Iterator[list[Record]]:
    """The topic page by page. Losing records is not what is measured: a tombstone is refused."""
    while True:
        diff = database.diff(topic, from_seq, limit=PAGE, **options)
        if isinstance(diff.tombstone, Tombstone):
            raise WrongResultError(f"{topic}: records were lost ({diff.tombstone})")
        yield diff.records
        from_seq = diff.next_from_seq
        if diff.caught_up:
            return


def check_page(records: list[Record], first_seq: int) -> int:
    """Right seqs and right bytes; gives the seq that comes next."""
    seq = first_seq
    for record in records:
        if record.seq != seq or record.data_json != PAYLOADS[seq % 1000]:
            raise WrongResultError(f"seq {seq} is not what was written: {record}")
        seq += 1
    return seq


def check_topic(database: headwater.Database, topic: str, records: int) -> None:
    """Every record that was acknowledged is there, in order, byte for byte, and no other."""
    seq = 1
    for page in walk(database, topic):
        seq = check_page(page, seq)
    if seq != records + 1:
        raise WrongResultError(f"{topic}: {seq - 1} records are there, {records} were acknowledged")


def check_directory(directory: Path, settings: EngineSettings, heads: dict[str, int]) -> None:
    """Open again and read everything back."""
    with headwater.open(directory, settings=settings) as database:
        for topic, head in heads.items():
            check_topic(database, topic, head)
