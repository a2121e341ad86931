"""`headwater queue work`: run a command for each job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from headwater.api.jobs import GiveBackError, Outcome, Stop, WorkDone
from headwater.cli.output import complain, finish, printable, say, say_json
from headwater.cli.queue import LeaseOption
from headwater.cli.remote import ANY_SERVER, ServerCall
from headwater.cli.signals import stopped_by_signals
from headwater.cli.topic import TopicArgument
from headwater.core.errors import RequestError
from headwater.core.limits import CLAIM_JOBS_CLAMP
from headwater.core.results import ClaimedJob

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
