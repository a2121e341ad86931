"""Records by their seqs: what a worker is given, wherever it lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from headwater.core.arrays import numpy
from headwater.core.records import Record
from headwater.engine.operation import AsOwner, InFiles, Operation
from headwater.engine.partition import FrameRun, ReadPlan
from headwater.engine.state.topic import Topic
from headwater.engine.topics.operations import EMPTY_ROUNDS_MAX, Take, Taken, take_records
from headwater.engine.topics.protocols import TopicEngine
from headwater.engine.topics.reader import ReadFilter
from headwater.model.slots import as_run
from headwater.store.segment import SegmentChangedError

P = TypeVar("P")
_EVERYTHING = ReadFilter()
AT_HAND_CHUNKS_MAX: Final = 8
"""More chunks than this are those of single writes: they are put together before they are read."""


def runs_at_hand(topic: Topic, seqs: Sequence[int]) -> list[FrameRun] | None:
    """As the owner: where the frames of these records lie, when they are neighbours, all alive, and
    in a few chunks of the tail. None when they are not: then their reading is planned."""
    run, tail_first = as_run(seqs), topic.tail.first_seq
    if run is None or tail_first is None or run.start < tail_first:
        return None
    if not topic.log.index.all_live(run.start, run.stop):
        return None
    runs: list[FrameRun] = []
    for chunk in topic.tail.chunks(run.start, run.stop - 1):
        if len(runs) == AT_HAND_CHUNKS_MAX:
            return None
        first = max(run.start - chunk.first_seq, 0)
        offsets = numpy.array(chunk.offsets[first : run.stop - chunk.first_seq], numpy.int64)
        runs.append(FrameRun(chunk.buffer, offsets, in_segment=False))
    return runs


def fetch_records(
    engine: TopicEngine, topic: Topic, seqs: Sequence[int]
) -> Operation[dict[int, Record]]:
    """These records, as far as they are there and can be read."""
    records = yield from fetch_as(engine, topic, seqs, take_records)
    return {record.seq: record for record in records}


def fetch_as(engine: TopicEngine, topic: Topic, seqs: Sequence[int], take: Take[P]) -> Operation[P]:
    """The same in the form that `take` gives them, in the order of their seqs."""
    make_plan = partial(engine.reader.plan_seqs, topic, seqs)
    return (yield from fetch_planned(engine, topic, make_plan, take))


def fetch_planned(
    engine: TopicEngine, topic: Topic, make_plan: Callable[[], ReadPlan], take: Take[P]
) -> Operation[P]:
    """The same for a plan that is made as the owner, together with what else is to be asked."""
    for _ in range(EMPTY_ROUNDS_MAX):
        plan: ReadPlan = yield AsOwner(make_plan)
        work = partial(_taken, plan, take)
        taken: Taken[P] | None = (yield InFiles(work)) if plan.waits_for_files else work()
        if taken is None:
            continue  # a segment was rewritten or went away in between
        if taken.findings and (yield AsOwner(partial(plan.note_damage, taken.findings))):
            continue  # what is damaged is known now, and left out of the next plan
        engine.core.counters.records_read += taken.records
        return taken.payload
    raise SegmentChangedError(f"{topic.name!r} is being rewritten; try again")


def _taken(plan: ReadPlan, take: Take[P]) -> Taken[P] | None:
    try:
        return take(plan, _EVERYTHING)
    except SegmentChangedError:
        return None
