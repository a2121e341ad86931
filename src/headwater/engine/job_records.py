"""Records by their seqs: what a worker is given, wherever it lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from headwater.core.records import Record
from headwater.engine.engine import Engine
from headwater.engine.reading import ReadFilter, ReadPlan
from headwater.engine.steps import (
    EMPTY_ROUNDS_MAX,
    AsOwner,
    InFiles,
    Steps,
    Take,
    Taken,
    take_records,
)
from headwater.engine.topic import Topic
from headwater.store.segment import SegmentChangedError

P = TypeVar("P")
_EVERYTHING = ReadFilter()


def records_steps(engine: Engine, topic: Topic, seqs: Sequence[int]) -> Steps[dict[int, Record]]:
    """These records, as far as they are there and can be read."""
    records = yield from taken_steps(engine, topic, seqs, take_records)
    return {record.seq: record for record in records}


def taken_steps(engine: Engine, topic: Topic, seqs: Sequence[int], take: Take[P]) -> Steps[P]:
    """The same in the form that `take` gives them, in the order of their seqs."""
    make_plan = partial(engine.reader.plan_seqs, topic, seqs)
    return (yield from planned_steps(engine, topic, make_plan, take))


def planned_steps(
    engine: Engine, topic: Topic, make_plan: Callable[[], ReadPlan], take: Take[P]
) -> Steps[P]:
    """The same for a plan that is made as the owner, together with what else is to be asked."""
    for _ in range(EMPTY_ROUNDS_MAX):
        plan: ReadPlan = yield AsOwner(make_plan)
        work = partial(_taken, engine, plan, take)
        taken: Taken[P] | None = (yield InFiles(work)) if plan.waits_for_files else work()
        if taken is None:
            continue  # a segment was rewritten or went away in between
        if taken.findings and (yield AsOwner(partial(engine.note_damage, plan, taken.findings))):
            continue
        engine.core.counters.records_read += taken.records
        return taken.payload
    raise SegmentChangedError(f"{topic.name!r} is being rewritten; try again")


def _taken(engine: Engine, plan: ReadPlan, take: Take[P]) -> Taken[P] | None:
    try:
        return take(engine.reader, plan, _EVERYTHING)
    except SegmentChangedError:
        return None
