"""Jobs as JSON: the form in which the server takes what a claim was given."""

from __future__ import annotations

from headwater.engine.engine import Engine
from headwater.engine.job_records import taken_steps
from headwater.engine.queues import Queues
from headwater.engine.reading import Reader, ReadFilter, ReadPlan
from headwater.engine.steps import AsOwner, Steps, Take, Taken
from headwater.engine.topic import Topic
from headwater.model.queue import Grant
from headwater.wire.frames import More, render_objects
from headwater.wire.render import Projection

_WHOLE = Projection(tags=True)


def job_steps(engine: Engine, queues: Queues, topic: Topic, grant: Grant) -> Steps[list[bytes]]:
    """Each job of a claim as a JSON object, by seq, as far as they are there and can be read."""
    deadline, again = yield AsOwner(lambda: queues.terms(topic, grant))
    terms = b',"lease_id":%d,"deadline":%d,"deliveries":' % (grant.lease_id, deadline)
    special = {seq: b"%b%d" % (terms, count) for seq, count in again.items()}
    return (yield from taken_steps(engine, topic, grant.seqs, _take(More(terms + b"1", special))))


def _take(more: More) -> Take[list[bytes]]:
    def take(reader: Reader, plan: ReadPlan, _keep: ReadFilter) -> Taken[list[bytes]]:
        runs, findings = reader.runs(plan)
        objects: list[bytes] = []
        for run in runs:
            objects += render_objects(
                run.buffer,
                run.offsets,
                in_segment=run.in_segment,
                projection=_WHOLE,
                more=more,
            )
        return Taken(objects, len(objects), findings)

    return take
