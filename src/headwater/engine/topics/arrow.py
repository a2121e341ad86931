"""A range of records as an Arrow IPC stream: the form in which bulk readers take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple

from headwater.core import limits
from headwater.core.results import Tombstone
from headwater.core.units import MIB
from headwater.engine.operation import InFiles, Operation
from headwater.engine.topics.operations import diff_request, loaded_partition, read_as_operation
from headwater.engine.topics.protocols import ReadSide

ROWS_AT_ONCE: Final = 16_384
PAGE_BYTES_MAX: Final = 64 * MIB
"""Payload of one page; its `next_from_seq` says where to go on."""


class ArrowParts(NamedTuple):
    """A page; the stream is in parts, so that columns are not copied."""

    parts: Sequence[bytes | memoryview]
    next_from_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    epoch: int


@cache
def _load() -> ModuleType:
    return import_module("headwater.engine.topics.arrow_rows")


def arrow_operation(
    engine: ReadSide, name: str, from_seq: int, to_seq: int, rows_max: int
) -> Operation[ArrowParts]:
    rows = _load() if _load.cache_info().currsize else (yield InFiles(_load))
    topic = yield from loaded_partition(engine, name)
    take = rows.take_arrow(topic.name, to_seq)
    batches: list[Any] = []
    count, size, cursor, tombstone, caught_up = 0, 0, from_seq, None, False
    while count < rows_max and size < PAGE_BYTES_MAX and cursor < to_seq and not caught_up:
        request = replace(
            diff_request(cursor),
            limit=min(ROWS_AT_ONCE, rows_max - count),
            bytes_max=limits.READ_BYTES_CLAMP,
        )
        result = yield from read_as_operation(engine, topic, request, take)
        if result.tombstone is not None and (count or tombstone is not None):
            break  # a page has one tombstone, and it comes before the records
        tombstone = result.tombstone or tombstone
        cursor, caught_up = result.next_from_seq, result.caught_up
        batches += result.payload
        count += sum(batch.num_rows for batch in result.payload)
        size += sum(batch.nbytes for batch in result.payload)
    parts = rows.arrow_stream(batches)
    return ArrowParts(parts, min(cursor, to_seq), caught_up, tombstone, topic.epoch)
