"""`headwater queue`: claim, ack and nack jobs, run a command for each; show, pause, requeue."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from headwater.api.jobs import GiveBackError, Outcome, Stop, WorkDone
from headwater.cli.output import complain, finish, printable, say, say_json, say_table
from headwater.cli.records import record_json, record_line
from headwater.cli.remote import ANY_SERVER, ServerCall
from headwater.cli.signals import stopped_by_signals
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


GIVE_UP_AFTER_S: Final = 3_600.0
"""A worker waits long for a server that is away: it usually runs without a user."""


class CommandFailedError(Exception):
    """The command ended with something other than 0."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code


def work(
    topic: TopicArgument,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="What to run; -- before its options.")
    ],
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", min=1, max=CLAIM_JOBS_CLAMP[1], metavar="N", help="At a time."
        ),
    ] = 1,
    lease_ms: LeaseOption = None,
    retry_ms: Annotated[
        int,
        typer.Option(min=0, metavar="MS", help="Wait before a failed job is tried again; doubles."),
    ] = 1_000,
    idle_ms: Annotated[
        int | None,
        typer.Option(min=0, metavar="MS", help="End when there was nothing to do for so long."),
    ] = None,
    node: Annotated[
        str, typer.Option(metavar="NAME", help="The worker's name; host and process id otherwise.")
    ] = "",
    call: ServerCall = ANY_SERVER,
) -> None:
    """Run a command for each job of a queue, until Ctrl-C.

    The command gets the job's data as JSON on stdin, and HEADWATER_JOB_SEQ, _TAG, _DELIVERIES,
    _LEASE_ID and _TOPIC in its environment. Exit code 0 means done: the job is deleted. Anything
    else gives it back, to be tried again later. A job is held as long as its command runs. The
    first Ctrl-C or SIGTERM lets commands finish, the second does not. --json prints an object for
    each job, and what commands print goes to stderr.
    """
    with call.connect(give_up_after_s=GIVE_UP_AFTER_S) as client:
        client.queue_stats(topic)  # says at once when there is no such queue
        with _progress(topic) as advance:
            working = CommandWork(topic, command, advance, as_json=call.as_json)
            options: dict[str, Any] = {"node": node} if node else {}
            with stopped_by_signals(working.interrupt):
                done = client.work(
                    topic,
                    working.run,
                    threads=jobs,
                    lease_ms=lease_ms,
                    retry_ms=retry_ms,
                    idle_ms=idle_ms,
                    stop=working.stop,
                    on_done=working.report,
                    **options,
                )
    if working.broken is not None:
        raise RequestError(f"cannot run {command[0]!r}: {working.broken.strerror}")
    if not call.as_json:
        say(_summary(done))


class CommandWork:
    """Runs the command for each job, and reports the outcome."""

    def __init__(
        self,
        topic: str,
        command: list[str],
        advance: Callable[[Outcome], None],
        *,
        as_json: bool,
    ) -> None:
        self._topic = topic
        self._command = command
        self._advance = advance
        self._as_json = as_json
        self.stop = Stop()
        self.broken: OSError | None = None
        """The command cannot be run at all; no other job will fare better."""

    def run(self, job: ClaimedJob) -> None:
        try:
            code = run_command(self._command, self._topic, job, to_stderr=self._as_json)
        except OSError as error:
            self.broken = error
            self.stop.set()
            raise GiveBackError from error
        if code:
            raise CommandFailedError(code)

    def interrupt(self) -> None:
        """The first signal stops the worker after its running jobs, the second one at once."""
        if self.stop.is_set:
            raise KeyboardInterrupt
        self.stop.set()

    def report(self, outcome: Outcome) -> None:
        self._advance(outcome)
        if self._as_json:
            say_json(_outcome_as_json(outcome))
            finish()
        elif outcome.lost or isinstance(outcome.error, CommandFailedError):
            complain(_complaint(outcome))


def run_command(command: list[str], topic: str, job: ClaimedJob, *, to_stderr: bool) -> int:
    """The exit code. A command that a signal ended has one above 128, as in a shell."""
    record = job.record
    variables = {
        "HEADWATER_JOB_TOPIC": topic,
        "HEADWATER_JOB_SEQ": str(record.seq),
        "HEADWATER_JOB_TAG": (record.tag or "").replace("\0", ""),
        "HEADWATER_JOB_DELIVERIES": str(job.deliveries),
        "HEADWATER_JOB_LEASE_ID": str(job.lease_id),
    }
    ran = subprocess.run(
        command,
        input=record.data_json + b"\n",
        stdout=sys.stderr.fileno() if to_stderr else None,
        env={**os.environ, **variables},
        check=False,
    )
    return ran.returncode if ran.returncode >= 0 else 128 - ran.returncode


def _outcome_as_json(outcome: Outcome) -> dict[str, object]:
    result = "lost" if outcome.lost else "done" if outcome.error is None else "failed"
    variables: dict[str, object] = {
        "seq": outcome.job.record.seq,
        "result": result if outcome.begun else "given back",
        "deliveries": outcome.job.deliveries,
    }
    if isinstance(outcome.error, CommandFailedError):
        variables["exit_code"] = outcome.error.exit_code
        variables["retry_ms"] = outcome.delay_ms
    return variables


def _complaint(outcome: Outcome) -> str:
    seq = outcome.job.record.seq
    if outcome.lost:
        return f"job {seq} was no longer ours when it was done: its lease was over"
    return f"job {seq} failed ({outcome.error}), again in {outcome.delay_ms} ms"


def _summary(done: WorkDone) -> str:
    lost = f", {done.lost:,} lost to their deadlines" if done.lost else ""
    return f"{done.done:,} done, {done.failed:,} failed{lost}"


@contextmanager
def _progress(topic: str) -> Iterator[Callable[[Outcome], None]]:
    if not sys.stderr.isatty():
        yield lambda _outcome: None
        return
    text = TextColumn("{task.completed:,} done, {task.fields[failed]:,} failed")
    columns = (SpinnerColumn(), text, TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(printable(topic), total=None, failed=0)
        counts = {"done": 0, "failed": 0}

        def advance(outcome: Outcome) -> None:
            counts["failed" if outcome.error is not None else "done"] += outcome.begun
            bar.update(task, completed=counts["done"], failed=counts["failed"])

        yield advance
