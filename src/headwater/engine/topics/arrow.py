"""A range of records as an Arrow IPC stream: the form in which bulk readers take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple

from headwater.api.call_list import ARROW_ROWS_MAX, ArrowCall
from headwater.core import limits
from headwater.core.arrays import numpy
from headwater.core.results import ArrowPage, Tombstone
from headwater.core.units import MIB
from headwater.engine.operation import InFiles, Operation
from headwater.engine.partition import ReadPlan
from headwater.engine.topics.operations import (
    Take,
    Taken,
    diff_request,
    loaded_partition,
    read_as_operation,
)
from headwater.engine.topics.protocols import ReadSide
from headwater.engine.topics.reader import ReadFilter

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
    """Late: Arrow takes as long to load as a small log takes to open."""
    return import_module("headwater.wire.arrow")


def arrow_operation(
    engine: ReadSide, name: str, from_seq: int, to_seq: int, rows_max: int
) -> Operation[ArrowParts]:
    arrow = _load() if _load.cache_info().currsize else (yield InFiles(_load))
    topic = yield from loaded_partition(engine, name)
    take = _take_arrow(arrow, topic.name, to_seq)
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
    parts = arrow.arrow_stream(batches)
    return ArrowParts(parts, min(cursor, to_seq), caught_up, tombstone, topic.epoch)


def _take_arrow(arrow: ModuleType, topic: str, to_seq: int) -> Take[list[Any]]:
    """What there is, up to a seq: a batch for each stretch of frames that lie together."""

    def take(plan: ReadPlan, _keep: ReadFilter) -> Taken[list[Any]]:
        runs, findings = plan.runs()
        batches = []
        for run in runs:
            batch = arrow.frames_to_arrow(topic, run.buffer, run.offsets, in_segment=run.in_segment)
            wanted = int(numpy.searchsorted(batch.column("seq").to_numpy(), to_seq, "right"))
            if wanted:
                batches.append(batch.slice(0, wanted))
        return Taken(batches, sum(batch.num_rows for batch in batches), findings)

    return take


def arrow_page_operation(engine: ReadSide, call: ArrowCall) -> Operation[ArrowPage]:
    from_seq, to_seq = max(call.from_seq, 0), max(call.to_seq, 0)
    rows_max = min(max(call.limit, 1), ARROW_ROWS_MAX)
    page = yield from arrow_operation(engine, call.topic, from_seq, to_seq, rows_max)
    return ArrowPage(b"".join(page.parts), *page[1:])
