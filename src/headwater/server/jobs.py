"""Jobs as JSON: the form in which the server takes what a claim was given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from headwater.engine.engine import Engine
from headwater.engine.job_records import taken_steps
from headwater.engine.queues import Queues
from headwater.engine.reading import Reader, ReadFilter, ReadPlan
from headwater.engine.steps import AsOwner, Steps, Taken
from headwater.engine.topic import Topic
from headwater.model.queue import Grant
from headwater.wire.frames import More, render_frames, render_objects
from headwater.wire.render import Projection

P = TypeVar("P")
_WHOLE = Projection(tags=True)


class JobsText(NamedTuple):
    """Jobs as JSON objects with commas between."""

    text: bytes
    jobs: int


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
    take: Callable[[More, Reader, ReadPlan, ReadFilter], Taken[P]],
) -> Steps[P]:
    deadline, again = yield AsOwner(lambda: queues.terms(topic, grant))
    terms = b',"lease_id":%d,"deadline":%d,"deliveries":' % (grant.lease_id, deadline)
    special = {seq: b"%b%d" % (terms, count) for seq, count in again.items()}
    more = More(terms + b"1", special)
    return (yield from taken_steps(engine, topic, grant.seqs, partial(take, more)))


def _take_objects(
    more: More, reader: Reader, plan: ReadPlan, _keep: ReadFilter
) -> Taken[list[bytes]]:
    runs, findings = reader.runs(plan)
    objects: list[bytes] = []
    for buffer, offsets, in_segment in runs:
        objects += render_objects(
            buffer, offsets, in_segment=in_segment, projection=_WHOLE, more=more
        )
    return Taken(objects, len(objects), findings)


def _take_text(more: More, reader: Reader, plan: ReadPlan, _keep: ReadFilter) -> Taken[JobsText]:
    runs, findings = reader.runs(plan)
    texts = [
        render_frames(buffer, offsets, in_segment=in_segment, projection=_WHOLE, more=more)
        for buffer, offsets, in_segment in runs
        if len(offsets)
    ]
    count = sum(len(run.offsets) for run in runs)
    return Taken(JobsText(b",".join(texts), count), count, findings)
