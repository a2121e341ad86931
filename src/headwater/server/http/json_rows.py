"""Reads and jobs as JSON: the form in which the server takes what a plan found, or what a claim was
given."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import NamedTuple, TypeVar

from headwater.core.records import Record
from headwater.engine.operation import Operation
from headwater.engine.partition import FrameRun, ReadPlan
from headwater.engine.queues.claims import Queues, fetch_planned, runs_at_hand
from headwater.engine.state.topic import Topic
from headwater.engine.topics.operations import Take, Taken
from headwater.engine.topics.protocols import TopicEngine
from headwater.engine.topics.reader import ReadFilter, decode_run
from headwater.model.queue import Grant
from headwater.native import compiled
from headwater.wire.frames import More, Projection, render_frames, render_objects, render_record
from headwater.wire.page import RECORDS_MIN, LocatedFrames, Piece

_one_at_a_time = threading.Lock() if compiled("printer") is None else nullcontext()
"""Printing that is not compiled needs the interpreter all the time. Threads that take turns at it
get more done than threads that take it from each other every fifth of a millisecond."""
P = TypeVar("P")
_WHOLE = Projection(tags=True)


@lru_cache(maxsize=64)
def take_pieces(projection: Projection, *, reads_files: bool) -> Take[list[Piece]]:
    """Take records as JSON objects with commas between, in the fields the reader wants.

    `reads_files`: whoever sends the answer prints what lies in sealed segments itself.
    """

    def take(plan: ReadPlan, keep: ReadFilter) -> Taken[list[Piece]]:
        runs, findings = plan.runs()
        pieces: list[Piece] = []
        count = 0
        for run in runs:
            piece: Piece
            if not keep.keeps_all:
                records: list[Record] = []
                decode_run(run, keep, records)
                count += len(records)
                piece = b",".join([render_record(record, projection) for record in records])
            else:
                count += len(run.offsets)
                piece = (reads_files and _located(run, projection)) or _printed(run, projection)
            if piece:
                pieces += (b",", piece) if pieces else (piece,)
        return Taken(pieces, count, findings)

    return take


@lru_cache(maxsize=64)
def take_rendered(projection: Projection) -> Take[bytes]:
    """The same in one text."""
    take = take_pieces(projection, reads_files=False)

    def joined(plan: ReadPlan, keep: ReadFilter) -> Taken[bytes]:
        pieces, count, findings = take(plan, keep)
        texts = [piece for piece in pieces if isinstance(piece, bytes)]
        return Taken(texts[0] if len(texts) == 1 else b"".join(texts), count, findings)

    return joined


def _located(run: FrameRun, projection: Projection) -> LocatedFrames | None:
    place = run.place
    if place is None or len(run.offsets) < RECORDS_MIN:
        return None
    offsets = run.offsets + place.base
    return LocatedFrames(str(place.path), place.file_bytes, place.first_seq, offsets, projection)


def _printed(run: FrameRun, projection: Projection) -> bytes:
    with _one_at_a_time:
        return render_frames(
            run.buffer, run.offsets, in_segment=run.in_segment, projection=projection
        )


class JobsText(NamedTuple):
    """Jobs as JSON objects with commas between, and how many more were ready then."""

    text: bytes
    jobs: int
    ready: int


def fetch_jobs(
    engine: TopicEngine, queues: Queues, topic: Topic, grant: Grant
) -> Operation[list[bytes]]:
    """Each job of a claim as a JSON object, by seq, as far as they are there and can be read."""
    return (yield from _fetch(engine, queues, topic, grant, _take_objects))


def fetch_jobs_text(
    engine: TopicEngine, queues: Queues, topic: Topic, grant: Grant
) -> Operation[JobsText]:
    """The same in one piece."""
    return (yield from _fetch(engine, queues, topic, grant, _take_text))


def jobs_text_at_hand(
    engine: TopicEngine, queues: Queues, topic: Topic, grant: Grant
) -> JobsText | None:
    """The same, as the owner, for jobs that lie near the head, as most do that are claimed soon.
    None when they do not."""
    runs = runs_at_hand(topic, grant.seqs)
    if runs is None:
        return None
    terms = _terms(queues, topic, grant)
    text = _text(runs, terms.more())
    engine.core.counters.records_read += len(grant.seqs)
    return JobsText(text, len(grant.seqs), terms.ready)


def _fetch(
    engine: TopicEngine,
    queues: Queues,
    topic: Topic,
    grant: Grant,
    take: Callable[[_Terms, ReadPlan], Taken[P]],
) -> Operation[P]:
    terms: _Terms | None = None

    def plan() -> ReadPlan:
        nonlocal terms
        terms = _terms(queues, topic, grant)
        return engine.reader.plan_seqs(topic, grant.seqs)

    def taken(plan: ReadPlan, _keep: ReadFilter) -> Taken[P]:
        assert terms is not None, "planned before it is read"
        return take(terms, plan)

    return (yield from fetch_planned(engine, topic, plan, taken))


def _terms(queues: Queues, topic: Topic, grant: Grant) -> _Terms:
    deadline, again = queues.terms(topic, grant)
    return _Terms(grant.lease_id, deadline, again, queues.ready(topic))


class _Terms(NamedTuple):
    """The fields beside each job of a claim; known when its reading is planned."""

    lease_id: int
    deadline: int
    again: dict[int, int]
    ready: int

    def more(self) -> More:
        common = b',"lease_id":%d,"deadline":%d,"deliveries":' % (self.lease_id, self.deadline)
        special = {seq: b"%b%d" % (common, count) for seq, count in self.again.items()}
        return More(common + b"1", special)


def _take_objects(terms: _Terms, plan: ReadPlan) -> Taken[list[bytes]]:
    more = terms.more()
    runs, findings = plan.runs()
    objects: list[bytes] = []
    for buffer, offsets, in_segment, _ in runs:
        objects += render_objects(
            buffer, offsets, in_segment=in_segment, projection=_WHOLE, more=more
        )
    return Taken(objects, len(objects), findings)


def _take_text(terms: _Terms, plan: ReadPlan) -> Taken[JobsText]:
    runs, findings = plan.runs()
    count = sum(len(run.offsets) for run in runs)
    text = _text(runs, terms.more())
    return Taken(JobsText(text, count, terms.ready), count, findings)


def _text(runs: Sequence[FrameRun], more: More) -> bytes:
    texts = [
        render_frames(buffer, offsets, in_segment=in_segment, projection=_WHOLE, more=more)
        for buffer, offsets, in_segment, _ in runs
        if len(offsets)
    ]
    return texts[0] if len(texts) == 1 else b",".join(texts)
