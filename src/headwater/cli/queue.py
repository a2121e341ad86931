"""`headwater queue`: claim, ack and nack jobs; show, pause and resume a queue; requeue letters."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Annotated

import typer

from headwater.cli.output import printable, say, say_table
from headwater.cli.records import record_json, record_line
from headwater.cli.remote import ANY_SERVER, ServerCall
from headwater.cli.topic import TopicArgument
from headwater.client import Client
from headwater.core.errors import NotAQueueError, RequestError
from headwater.core.limits import (
    ACK_JOBS_MAX,
    CLAIM_JOBS_CLAMP,
    NACK_DELAY_MS_MAX,
    READ_WAIT_MS_CLAMP,
)
from headwater.core.results import DEAD_LETTER_ORIGIN, ClaimedJob, LeaseResult

NodeOption = Annotated[
    str,
    typer.Option("--node", metavar="NAME", help="The worker's name; the host's name otherwise."),
]
SeqsArgument = Annotated[list[int], typer.Argument(metavar="SEQ...", help="The jobs.")]
LeaseIdOption = Annotated[
    int | None,
    typer.Option(
        "--lease-id", metavar="N", help="Only jobs still held under the claim of this number."
    ),
]
LeaseOption = Annotated[
    int | None,
    typer.Option("--lease-ms", metavar="MS", help="How long to hold; as the queue says."),
]


def default_node() -> str:
    return socket.gethostname()[:128] or "cli"


def claim(
    topic: TopicArgument,
    limit: Annotated[
        int,
        typer.Option("--max", "-n", min=1, max=CLAIM_JOBS_CLAMP[1], metavar="N", help="So many."),
    ] = 1,
    wait_ms: Annotated[
        int,
        typer.Option(
            "--wait-ms", min=0, max=READ_WAIT_MS_CLAMP, metavar="MS", help="Wait for a first job."
        ),
    ] = 0,
    lease_ms: LeaseOption = None,
    node: NodeOption = "",
    call: ServerCall = ANY_SERVER,
) -> None:
    """Take jobs of a queue for a while. With --json one object a line.

    Jobs that are not acked in time are handed out again.
    """
    with call.connect() as client:
        claimed = client.claim(
            topic, node or default_node(), limit, lease_ms=lease_ms, wait_ms=wait_ms
        )
    for job in claimed.jobs:
        say(job_json(job) if call.as_json else _job_line(job))
    if not call.as_json and not claimed.jobs:
        say(f"{printable(topic)}: nothing to do")


def job_json(job: ClaimedJob) -> str:
    terms = f'{{"lease_id":{job.lease_id},"deadline":{job.deadline},"deliveries":{job.deliveries},'
    return terms + record_json(job.record)[1:]


def _job_line(job: ClaimedJob) -> str:
    tries = "" if job.deliveries == 1 else f"try {job.deliveries}  "
    return f"lease {job.lease_id}  {tries}{record_line(job.record)}"


def ack(
    topic: TopicArgument,
    seqs: SeqsArgument,
    lease_id: LeaseIdOption = None,
    node: NodeOption = "",
    call: ServerCall = ANY_SERVER,
) -> None:
    """Jobs are done: delete them for good."""
    with call.connect() as client:
        result = client.ack(
            topic, node or default_node(), seqs, lease_ids=_lease_ids(lease_id, seqs)
        )
    _say_result(call, "acked", result)


def nack(
    topic: TopicArgument,
    seqs: SeqsArgument,
    delay_ms: Annotated[
        int,
        typer.Option(
            "--delay-ms", min=0, max=NACK_DELAY_MS_MAX, metavar="MS", help="Not before that."
        ),
    ] = 0,
    lease_id: LeaseIdOption = None,
    node: NodeOption = "",
    call: ServerCall = ANY_SERVER,
) -> None:
    """Give jobs back, to be handed out again at once or later."""
    with call.connect() as client:
        result = client.nack(
            topic,
            node or default_node(),
            seqs,
            lease_ids=_lease_ids(lease_id, seqs),
            delay_ms=delay_ms,
        )
    _say_result(call, "nacked", result)


def extend(
    topic: TopicArgument,
    seqs: SeqsArgument,
    lease_ms: LeaseOption = None,
    lease_id: LeaseIdOption = None,
    node: NodeOption = "",
    call: ServerCall = ANY_SERVER,
) -> None:
    """Hold jobs longer, from now."""
    with call.connect() as client:
        result = client.extend(
            topic,
            node or default_node(),
            seqs,
            lease_ids=_lease_ids(lease_id, seqs),
            lease_ms=lease_ms,
        )
    _say_result(call, "extended", result)


def _lease_ids(lease_id: int | None, seqs: list[int]) -> list[int] | None:
    return None if lease_id is None else [lease_id] * len(seqs)


def _say_result(call: ServerCall, verb: str, result: LeaseResult) -> None:
    """Exit code 2 when this node did not hold one of the jobs: a script should notice."""
    answer = result._asdict()
    answer = {verb: answer.pop("seqs"), **answer}
    if not result.deadlines:
        answer.pop("deadlines")
    if not call.say_json(answer) and result.seqs:
        say(f"{verb} {', '.join(map(str, result.seqs))}")
    if result.skipped:
        shown = ", ".join(map(str, result.skipped))
        raise RequestError(
            f"not {verb}: {shown}; held by no node, by another node or under another lease"
        )


def stats(topic: TopicArgument, call: ServerCall = ANY_SERVER) -> None:
    """Show how many jobs are ready, in flight, delayed, given up, and blocked.

    Blocked are jobs that were delivered as often as they may be and whose dead letter topic refuses
    them; the warning in the server's log says why.
    """
    with call.connect() as client:
        counts = client.queue_stats(topic)
        paused = bool(client.state(topic).config.get("paused"))
    if call.say_json({"topic": topic, **counts._asdict(), "paused": paused}):
        return
    rows = [[name.replace("_", " "), f"{value:,}"] for name, value in counts._asdict().items()]
    say_table(["what", "jobs"], [*rows, ["paused", "yes" if paused else "no"]], "jobs")


def pause(topic: TopicArgument, call: ServerCall = ANY_SERVER) -> None:
    """Hand out no more jobs. Writes and acks go on."""
    _set_paused(topic, True, call)


def resume(topic: TopicArgument, call: ServerCall = ANY_SERVER) -> None:
    """Hand out jobs again."""
    _set_paused(topic, False, call)


def _set_paused(topic: str, paused: bool, call: ServerCall) -> None:
    with call.connect() as client:
        if client.state(topic).type != "queue":  # or there is none, and none is made
            raise NotAQueueError(f"{topic!r} is a log; only queues can be paused")
        client.create(topic, paused=paused)
    said = f"{printable(topic)}: {'paused' if paused else 'resumed'}"
    call.say({"topic": topic, "paused": paused}, said)


def requeue(
    topic: TopicArgument,
    seqs: Annotated[
        list[int] | None, typer.Argument(metavar="[SEQ...]", help="The letters.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All letters of the topic.")] = False,
    call: ServerCall = ANY_SERVER,
) -> None:
    """Give dead letters back to the queues they came from.

    TOPIC is the dead letter topic. Each letter is written to its queue, then deleted here. What is
    not a letter stays; exit code 2 when one of the seqs named was none.
    """
    if bool(seqs) == everything:
        raise RequestError("name the letters by seq, or say --all")
    given: list[int] = []
    skipped: list[int] = []
    with call.connect() as client:
        for some in _letters(client, topic) if everything else _batches(seqs or []):
            done = client.requeue(topic, some)
            given += done.seqs
            skipped += done.skipped
    line = f"{printable(topic)}: {len(given):,} given back"
    call.say({"requeued": given, "skipped": skipped}, line)
    if skipped:
        shown = ", ".join(map(str, skipped[:20]))
        raise RequestError(f"not given back: {shown}; not there, no letter, or not allowed")


def _batches(seqs: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(seqs), ACK_JOBS_MAX):
        yield seqs[start : start + ACK_JOBS_MAX]


def _letters(client: Client, topic: str) -> Iterator[list[int]]:
    """All letters that are there now, a page at a time: what comes meanwhile is not meant."""
    head, cursor = client.state(topic).head_seq, 0
    while cursor < head:
        page = client.diff(topic, cursor, limit=ACK_JOBS_MAX)
        letters = [
            record.seq
            for record in page.records
            if record.seq <= head and DEAD_LETTER_ORIGIN in (record.meta or {})
        ]
        if letters:
            yield letters
        cursor = page.next_from_seq
        if page.caught_up:
            break
