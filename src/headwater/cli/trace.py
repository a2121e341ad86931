"""`headwater trace`: what writes waited for, where that was long."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from headwater.cli.output import complain, finish, printable, say, say_table, when
from headwater.cli.remote import ANY_SERVER, ServerCall
from headwater.client.blocking import Client
from headwater.client.retry import blocking_sleep
from headwater.core.clock import Clock, SystemClock
from headwater.core.limits import INTEGER_MAX
from headwater.core.results import LongWait, Trace, WaitCount
from headwater.core.units import US_PER_MS, US_PER_S

FOLLOW_EVERY_S = 1.0


class CauseReport(msgspec.Struct, frozen=True):
    cause: str
    meaning: str
    count: int
    total_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float


def trace(
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=86_400,
            metavar="N",
            help="Follow for so long and report these waits. Without it: what the server has kept.",
        ),
    ] = None,
    longest: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show so many of the longest waits.")
    ] = 10,
    call: ServerCall = ANY_SERVER,
) -> None:
    """Show what writes waited for, where that was long, by cause.

    Percentiles are those of the newest waits of each cause, which the server keeps.
    """
    with call.connect() as client:
        if seconds is None:
            found = client.trace()
        else:
            found = follow(client, seconds, SystemClock(), live=not call.as_json)
    if not found.wait_us_min:
        complain("this server keeps no waits: wait_us_min is 0")
    report = causes_of(found)
    slowest = sorted(found.waits, key=lambda wait: -wait.duration_us)[:longest]
    told = {"wait_us_min": found.wait_us_min, "causes": report, "longest": slowest}
    if call.say_json(msgspec.to_builtins(told)):
        return
    say_table(
        ["cause", "count", "total_ms", "p50_ms", "p99_ms", "max_ms", "meaning"],
        [
            [each.cause, f"{each.count:,}", *map(_shown, _figures(each)), each.meaning]
            for each in report
        ],
        "count total_ms p50_ms p99_ms max_ms",
    )
    if slowest:
        say()
        say_table(
            ["began", "ms", "cause", "detail", "beside"],
            [[*_words(wait)[:4], ", ".join(wait.beside) or "-"] for wait in slowest],
            "ms",
        )


def follow(client: Client, seconds: float, clock: Clock, *, live: bool) -> Trace:
    """The waits of so many seconds from now on; `live` prints each as it is known."""
    sleep = blocking_sleep(clock)
    until_us = clock.monotonic_us() + int(seconds * US_PER_S)
    before = client.trace(INTEGER_MAX)
    known = sum(each.count for each in before.causes)  # numbers count up over all causes
    waits: list[LongWait] = []
    while True:
        left_s = (until_us - clock.monotonic_us()) / US_PER_S
        sleep(min(max(left_s, 0), FOLLOW_EVERY_S))
        now = client.trace(known)
        for wait in now.waits:
            known = wait.number
            if live:
                began, ms, cause, detail = _words(wait)
                beside = f", beside {', '.join(wait.beside)}" if wait.beside else ""
                say(printable(f"{began}  {ms:>10} ms  {cause}: {detail}{beside}"))
        waits += now.waits
        if left_s <= FOLLOW_EVERY_S:
            break
        finish()
    counted = [
        WaitCount(new.cause, new.meaning, new.count - old.count, new.total_us - old.total_us)
        for new, old in zip(now.causes, before.causes, strict=True)
    ]
    if live and waits:
        say()
    return Trace(now.now_ms, now.wait_us_min, counted, waits)


def causes_of(found: Trace) -> list[CauseReport]:
    """Those that came about, the one that took the most time first."""
    by_cause: dict[str, list[float]] = defaultdict(list)
    for wait in found.waits:
        by_cause[wait.cause].append(wait.duration_us / US_PER_MS)
    report = [
        CauseReport(
            each.cause,
            each.meaning,
            each.count,
            each.total_us / US_PER_MS,
            *(percentile(sorted(by_cause[each.cause]), share) for share in (0.5, 0.99, 1)),
        )
        for each in found.causes
        if each.count
    ]
    return sorted(report, key=lambda each: -each.total_ms)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share does not exceed. `values` are in order."""
    return values[max(math.ceil(len(values) * share) - 1, 0)] if values else math.nan


def _figures(each: CauseReport) -> tuple[float, ...]:
    return each.total_ms, each.p50_ms, each.p99_ms, each.max_ms


def _shown(ms: float) -> str:
    return f"{ms:,.1f}"


def _words(wait: LongWait) -> tuple[str, str, str, str]:
    return when(wait.at_ms), _shown(wait.duration_us / US_PER_MS), wait.cause, wait.detail
