"""Many topics that nobody uses, and deleting by tag among many records."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import headwater
from bench.embedded import (
    PAGE,
    TOPIC,
    batch_from,
    check_page,
    fill,
    roomy,
    settings_for,
    told,
    walk,
)
from bench.log_under_test import WrongResultError
from bench.opening_process import open_in_process
from bench.payloads import PAYLOADS
from bench.registry import Row, Run, benchmark
from bench.writers import new_loop
from headwater.config.engine import EngineSettings

clock = time.perf_counter
TAGS = 1_000
WRITES = 200


def elapsed_s(work: Callable[[], object]) -> float:
    started = clock()
    work()
    return clock() - started


@benchmark(
    "embedded-topics", "What do 100,000 idle topics cost at a start, in memory, and a write?"
)
def idle_topics(run: Run) -> list[Row]:
    count, filled = run.size(100_000, 2_000), run.size(1_000, 20)
    settings = roomy(settings_for(run), count)
    directory, single = run.directory / "many", run.directory / "single"
    made_s = elapsed_s(lambda: make_topics(directory, settings, count, filled))
    make_topics(single, settings, 1, 1)
    starts = run.size(3, 1)
    alone = [open_in_process(run, single) for _ in range(starts)]
    among = [open_in_process(run, directory) for _ in range(starts)]
    if any(opened.topics != count for opened in among):
        raise WrongResultError(f"not all of {count} topics came back")
    start_ms = [statistics.median(o.answered_s for o in opened) * 1e3 for opened in (alone, among)]
    memory = [statistics.median(o.memory_answered for o in opened) for opened in (alone, among)]
    few = told("disk", topics=1)
    many = told("disk", topics=f"{count:,}", with_a_record=f"{filled:,}")
    before = Row("start to first answer, 1 topic", start_ms[0], "ms", few)
    writes = min(WRITES, filled)
    places = {
        "one write, 1 topic": (single, [0] * writes, few),
        "one write, each to another idle topic": (directory, list(range(writes)), many),
        "one write, all to one idle topic": (directory, [0] * writes, many),
    }
    first, *others = [
        Row(name, lone_write_us(place, settings, numbers), "us p50", conditions)
        for name, (place, numbers, conditions) in places.items()
    ]
    return [
        Row("making them, closed cleanly", made_s / count * 1e6, "us a topic", many),
        before,
        Row("start to first answer, idle topics", start_ms[1], "ms", many).against(before),
        Row("memory", (memory[1] - memory[0]) / count, "bytes a topic", many),
        first,
        *(other.against(first) for other in others),
    ]


def make_topics(directory: Path, settings: EngineSettings, count: int, filled: int) -> None:
    """64 at a time, through the awaitable face. The first ones get a record."""

    async def make() -> None:
        async with await headwater.open_async(directory, settings=settings) as database:

            async def some(first: int) -> None:
                for number in range(first, count, 64):
                    await database.create(topic_name(number), durability="disk")
                    if number < filled:
                        await database.append(topic_name(number), batch_from(number, 1))

            await asyncio.gather(*(some(first) for first in range(64)))

    loop = new_loop()
    loop.run_until_complete(make())
    loop.close()


def topic_name(number: int) -> str:
    return f"idle-{number:06}"


def lone_write_us(directory: Path, settings: EngineSettings, numbers: Sequence[int]) -> float:
    """Median time of a write to each of these topics, after a start; each is read back."""
    latencies = []
    with headwater.open(directory, settings=settings) as database:
        for number in numbers:
            name = topic_name(number)
            head = database.state(name).head_seq
            started = clock()
            appended = database.append(name, batch_from(number, 1))
            latencies.append(clock() - started)
            record = database.diff(name, head).records[0]
            if appended.last_seq != head + 1 or record.data_json != PAYLOADS[number % 1000]:
                raise WrongResultError(f"{name}: {record} is not what was written")
    return statistics.median(latencies) * 1e6


@benchmark("embedded-delete", "How long does deleting by tag take among 1 M records?")
def delete_by_tag(run: Run) -> list[Row]:
    records = run.size(1_000_000, 20_000)
    settings = settings_for(run)
    directory = run.directory / "tagged"
    with headwater.open(directory, settings=settings) as database:
        fill(database, records, tags=TAGS)
    each = records // TAGS
    with headwater.open(directory, settings=settings) as database:
        scan_s = elapsed_s(lambda: [None for _ in walk(database, match="user-1")])
        conditions = told("fsync", log=f"{records:,} records", tags=f"{TAGS:,}")
        scan = Row("reading all of it for one tag", scan_s * 1e3, "ms", conditions)
        rows = [scan]
        gone: set[int] = set()
        for name, match, tags in (
            ("delete by tag, first since the start", "user-1", [1]),
            ("delete by tag", "user-2", [2]),
            ("delete by prefix", "user-3*", [3, *range(30, 40), *range(300, 400)]),
        ):
            started = clock()
            deleted = database.delete(TOPIC, match=match)
            took_ms = (clock() - started) * 1e3
            if deleted.deleted != each * len(tags):
                raise WrongResultError(f"{match}: {deleted.deleted} records were deleted")
            gone.update(tags)
            told_here = {**conditions, "deleted": f"{deleted.deleted:,}"}
            rows.append(Row(name, took_ms, "ms", told_here).against(scan))
        half = records // 2
        cut_s = elapsed_s(lambda: database.delete(TOPIC, before_seq=half + 1))
        rows.append(Row("delete everything before the middle", cut_s * 1e3, "ms", conditions))
    check_rest(directory, settings, records, gone, half)
    return rows


def check_rest(
    directory: Path, settings: EngineSettings, records: int, gone: set[int], half: int
) -> None:
    """After a restart: what was deleted is gone, everything else is there, byte for byte."""
    expected = [seq for seq in range(half + 1, records + 1) if seq % TAGS not in gone]
    with headwater.open(directory, settings=settings) as database:
        found = []
        for page in walk(database):
            for record in page:
                check_page([record], record.seq)
                found.append(record.seq)
        if found != expected:
            raise WrongResultError(f"{len(found)} records are left, {len(expected)} should be")
        if database.diff(TOPIC, match="user-1", limit=PAGE).records:
            raise WrongResultError("a deleted record came back")
