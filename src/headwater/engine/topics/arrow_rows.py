"""Records as Arrow, taken from stored bytes: whole batches for each stretch of frames that lie
together. Loaded late: Arrow takes as long to load as a small log takes to open."""

from __future__ import annotations

from typing import Any

from headwater.core.arrays import numpy
from headwater.engine.partition import ReadPlan
from headwater.engine.topics.operations import Take, Taken
from headwater.engine.topics.reader import ReadFilter
from headwater.wire.arrow import arrow_stream, frames_to_arrow

__all__ = ["arrow_stream", "take_arrow"]


def take_arrow(topic: str, to_seq: int) -> Take[list[Any]]:
    """Take what there is, up to a seq."""

    def take(plan: ReadPlan, _keep: ReadFilter) -> Taken[list[Any]]:
        runs, findings = plan.runs()
        batches = []
        for run in runs:
            batch = frames_to_arrow(topic, run.buffer, run.offsets, in_segment=run.in_segment)
            wanted = int(numpy.searchsorted(batch.column("seq").to_numpy(), to_seq, "right"))
            if wanted:
                batches.append(batch.slice(0, wanted))
        return Taken(batches, sum(batch.num_rows for batch in batches), findings)

    return take
