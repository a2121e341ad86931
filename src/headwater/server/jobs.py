"""Jobs as JSON: the form in which the server takes what a claim was given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from headwater.engine.engine import Engine
from headwater.engine.job_records import planned_steps
from headwater.engine.queues import Queues
from headwater.engine.reading import Reader, ReadFilter, ReadPlan
from headwater.engine.steps import Steps, Taken
from headwater.engine.topic import Topic
from headwater.model.queue import Grant
from headwater.wire.frames import More, render_frames, render_objects
from headwater.wire.render import Projection

P = TypeVar("P")
_WHOLE = Projection(tags=True)


class JobsText(NamedTuple):
    """Jobs as JSON objects with commas between, and how many more were ready then."""

    text: bytes
    jobs: int
    ready: int


def job_steps(engine: Engine, queues: Queues, topic: Topic, grant: Grant) -> Steps[list[bytes]]:
    """Each job of a claim as a JSON object, by seq, as far as they are there and can be read."""
    return (yield from _taken_steps(engine, queues, topic, grant, _take_objects))


def jobs_text_steps(engine: Engine, queues: Queues, topic: Topic, grant: Grant) -> Steps[JobsText]:
    """The same in one piece."""
    return (yield from _taken_steps(engine, queues, topic, grant, _take_text))


def _taken_steps(
    engine: Engine,
    queues: Queues,
    topic: Topic,
    grant: Grant,
    take: Callable[[_Terms, Reader, ReadPlan, ReadFilter], Taken[P]],
) -> Steps[P]:
    terms = _Terms()

    def plan() -> ReadPlan:
        terms.deadline, terms.again = queues.terms(topic, grant)
        terms.ready = queues.ready(topic)
        return engine.reader.plan_seqs(topic, grant.seqs)

    terms.lease_id = grant.lease_id
    return (yield from planned_steps(engine, topic, plan, partial(take, terms)))


class _Terms:
    """What is told beside each job of a claim; known when its reading is planned."""

    __slots__ = ("again", "deadline", "lease_id", "ready")

    lease_id: int
    deadline: int
    again: dict[int, int]
    ready: int

    def more(self) -> More:
        common = b',"lease_id":%d,"deadline":%d,"deliveries":' % (self.lease_id, self.deadline)
        special = {seq: b"%b%d" % (common, count) for seq, count in self.again.items()}
        return More(common + b"1", special)


def _take_objects(
    terms: _Terms, reader: Reader, plan: ReadPlan, _keep: ReadFilter
) -> Taken[list[bytes]]:
    more = terms.more()
    runs, findings = reader.runs(plan)
    objects: list[bytes] = []
    for buffer, offsets, in_segment in runs:
        objects += render_objects(
            buffer, offsets, in_segment=in_segment, projection=_WHOLE, more=more
        )
    return Taken(objects, len(objects), findings)


def _take_text(terms: _Terms, reader: Reader, plan: ReadPlan, _keep: ReadFilter) -> Taken[JobsText]:
    more = terms.more()
    runs, findings = reader.runs(plan)
    texts = [
        render_frames(buffer, offsets, in_segment=in_segment, projection=_WHOLE, more=more)
        for buffer, offsets, in_segment in runs
        if len(offsets)
    ]
    count = sum(len(run.offsets) for run in runs)
    return Taken(JobsText(b",".join(texts), count, terms.ready), count, findings)
