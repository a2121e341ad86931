"""Reads as JSON: the form in which the server takes what a plan found."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from functools import lru_cache

from headwater.core.records import Record
from headwater.engine.partition import ReadPlan
from headwater.engine.topics.operations import Take, Taken
from headwater.engine.topics.reader import ReadFilter, decode_run
from headwater.native import compiled
from headwater.wire.frames import Projection, render_frames, render_record

_one_at_a_time = threading.Lock() if compiled("printer") is None else nullcontext()
"""Printing that is not compiled needs the interpreter all the time. Threads that take turns at it
get more done than threads that take it from each other every fifth of a millisecond."""


@lru_cache(maxsize=64)
def take_rendered(projection: Projection) -> Take[bytes]:
    """Take records as JSON objects with commas between, in the fields the reader wants."""

    def take(plan: ReadPlan, keep: ReadFilter) -> Taken[bytes]:
        runs, findings = plan.runs()
        parts: list[bytes] = []
        count = 0
        for run in runs:
            if keep.keeps_all:
                count += len(run.offsets)
                with _one_at_a_time:
                    rendered = render_frames(
                        run.buffer, run.offsets, in_segment=run.in_segment, projection=projection
                    )
                if rendered:
                    parts.append(rendered)
                continue
            records: list[Record] = []
            decode_run(run, keep, records)
            count += len(records)
            parts.extend(render_record(record, projection) for record in records)
        return Taken(parts[0] if len(parts) == 1 else b",".join(parts), count, findings)

    return take
