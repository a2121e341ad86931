"""The job `replay`: the machines' log becomes a table of instances, as of an offset or a time.

Entries are shuffled by instance, put in the order of the log, and folded with the rules a start
uses, so the result is what the store would have. With a live state to compare with, every
difference is reported; what changed meanwhile is counted and is no difference. The live state is
read before the log is read to its end, so the log is never behind it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import HeadwaterError, RequestError
from headwater.core.units import US_PER_S
from headwater.disk import PosixDisk
from headwater.format.machines.entry import EntryType
from headwater.model.machines.errors import INSTANCE_NOT_FOUND
from headwater.model.machines.instance import Instance
from headwater.recovery.history.machines import MachineFold, MachineSink
from headwater.spark.jobs.job import NoProgress, Progress, Report, SparkMap, read_items, tasks_shown
from headwater.spark.jobs.machine_log import (
    FROM_SNAPSHOT,
    ROWS,
    MachineLogView,
    read_split,
    view_machine_log,
)
from headwater.spark.runtime.arrow_schema import batch_of, in_batches, to_spark
from headwater.wire.machine_requests import LIST_LIMIT_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTED_MAX: Final = 1_000
LIVE_DDL: Final = (
    "id string, live_machine string, live_version bigint, live_state string, live_ctx string, "
    "live_offset bigint"
)
_COMPARED: Final = pa.schema(
    [("instance_id", pa.string()), ("what", pa.string()), ("count_", pa.int64())]
)
_COUNTS: Final = ("compared", "changed", "differences")
_FIELDS: Final = ("machine", "version", "state")


class Difference(msgspec.Struct, frozen=True):
    instance_id: str
    what: str


class Checked(msgspec.Struct, frozen=True):
    compared: int = 0
    changed_since: int = 0
    differences: int = 0
    listed: tuple[Difference, ...] = ()


class LiveInstance(NamedTuple):
    id: str
    machine: str
    version: int
    state: str
    ctx: str
    wal_offset: int


class LiveState(NamedTuple):
    """What a store has in memory."""

    end: int
    """Everything before this offset is in it."""
    instances: Sequence[LiveInstance]


class LiveMachines(Protocol):
    """What a client of a server and an open database both have."""

    def wal_stats(self) -> Any: ...

    def list_instances(
        self, machine: str | None, state: str | None, *, limit: int, offset: int
    ) -> Any: ...

    def get_instance(self, instance_id: str) -> Any: ...


def live_state(machines: LiveMachines) -> LiveState:
    """Everything there is now; what comes and goes meanwhile may be missing."""
    end = machines.wal_stats().current_offset
    return LiveState(end, list(_instances(machines)))


def _instances(machines: LiveMachines) -> Iterator[LiveInstance]:
    seen: set[str] = set()
    offset, more = 0, True
    while more:
        page = machines.list_instances(None, None, limit=LIST_LIMIT_MAX, offset=offset)
        offset, more = offset + len(page.instances), page.has_more
        for each in page.instances:
            if each.id in seen:
                continue
            seen.add(each.id)
            try:
                instance = machines.get_instance(each.id)
            except HeadwaterError as error:
                if getattr(error, "code", "") != INSTANCE_NOT_FOUND:
                    raise
                continue  # deleted since it was listed
            yield LiveInstance(
                each.id,
                instance.machine,
                instance.version,
                instance.state,
                msgspec.json.encode(instance.ctx, order="sorted").decode(),
                instance.last_wal_offset,
            )


def check_against(spark: SparkSession, instances: DataFrame, live: LiveState) -> Checked:
    """Join both, and say what is not alike."""
    there = spark.createDataFrame([tuple(each) for each in live.instances], LIVE_DDL)
    joined = instances.join(there, instances.instance_id == there.id, "full_outer")
    rows = joined.mapInArrow(partial(_compare, live.end), to_spark(_COMPARED)).collect()
    totals = dict.fromkeys(_COUNTS, 0)
    listed: list[Difference] = []
    for row in rows:
        if row.instance_id is None:
            totals[row.what] += row.count_
        else:
            listed.append(Difference(row.instance_id, row.what))
    listed.sort(key=lambda each: each.instance_id)
    compared, changed, differences = (totals[name] for name in _COUNTS)
    return Checked(compared, changed, differences, tuple(listed[:LISTED_MAX]))


def _compare(end: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: how many, and what is not alike."""
    compared = changed = 0
    listed: list[tuple[str | None, str, int]] = []
    differences = 0
    for batch in batches:
        for row in batch.to_pylist():
            compared += 1
            what = difference(row, end)
            changed += what is None
            if what:
                differences += 1
                if len(listed) < LISTED_MAX:
                    listed.append((row["instance_id"] or row["id"], what, 0))
    counts = zip(_COUNTS, (compared, changed, differences), strict=True)
    listed += [(None, name, count) for name, count in counts]
    yield batch_of(listed, _COMPARED)


def difference(row: Mapping[str, Any], end: int) -> str | None:
    """What is not alike; empty when all is; None when it was changed since the live state was
    read."""
    if row["instance_id"] is None:
        return f"live in state {row['live_state']!r}, and the log does not know it"
    if row["id"] is None:
        if row["deleted"]:
            return ""
        if row["wal_offset"] >= end:
            return None
        return f"in state {row['state']!r} by the log, and not live"
    if row["wal_offset"] > row["live_offset"]:
        return None if row["wal_offset"] >= end else _offsets(row)
    if row["deleted"] or row["wal_offset"] < row["live_offset"]:
        return _offsets(row)
    wrong = [
        f"{name} is {row[name]!r} by the log and {row[f'live_{name}']!r} live"
        for name in _FIELDS
        if row[name] != row[f"live_{name}"]
    ]
    if msgspec.json.decode(row["ctx"]) != msgspec.json.decode(row["live_ctx"]):
        wrong.append(f"ctx is {row['ctx']} by the log and {row['live_ctx']} live")
    return "; ".join(wrong)


def _offsets(row: Mapping[str, Any]) -> str:
    state = "deleted" if row["deleted"] else "last changed"
    return (
        f"{state} at {row['wal_offset']} by the log and last changed at {row['live_offset']} live"
    )


_TIME: Final = pa.timestamp("us", tz="UTC")
INSTANCES: Final = pa.schema(
    [
        pa.field("instance_id", pa.string(), nullable=False),
        pa.field("machine", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("ctx", pa.string(), nullable=False),
        pa.field("created_at", _TIME, nullable=False),
        pa.field("updated_at", _TIME, nullable=False),
        pa.field("wal_offset", pa.int64(), nullable=False),
        pa.field("doubtful", pa.bool_(), nullable=False),
        pa.field("deleted", pa.bool_(), nullable=False),
        pa.field("as_of", pa.int64(), nullable=False),
    ]
)
FORMATS: Final = ("delta", "parquet", "iceberg")
_US_PER_MS: Final = 1_000
_ISO: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """A data directory, in use or not."""
    at_offset: int | None = None
    """As of the entry there; the end of the log else."""
    at_ms: int | None = None
    """As of this time, in milliseconds since 1970."""
    table: str | None = None
    """Where the rows go; a few are in the report else."""
    format: str = "delta"
    show: int = 100
    """So many rows are in the report when there is no table."""


class StateCount(msgspec.Struct, frozen=True):
    machine: str
    version: int
    state: str
    instances: int


class ReplayReport(Report, frozen=True, kw_only=True):
    source: str
    as_of: int
    """Behind the last entry that counts."""
    snapshot: str | None
    entries: int
    """Of the log, in the files that were read."""
    instances: int
    deleted: int
    """Instances that were deleted since the snapshot; they are rows, too."""
    doubtful: int
    states: tuple[StateCount, ...]
    table: str | None
    rows: tuple[dict[str, Any], ...]
    compared: int = 0
    changed_since: int = 0
    differences: int = 0
    """All of them; at most a thousand are listed one by one."""
    listed: tuple[Difference, ...] = msgspec.field(default=(), name="told")
    seconds: float


def run(
    spark: SparkSession,
    options: ReplayOptions,
    progress: Progress | None = None,
    live: LiveState | None = None,
    clock: Clock | None = None,
) -> ReplayReport:
    """Replay, write or show, and compare with `live` if there is one."""
    clock = clock or SystemClock()
    began_us = clock.monotonic_us()
    _check(options, live)
    say = (progress or NoProgress()).say
    say("scanning the log")
    with tasks_shown(spark, progress):
        view = view_machine_log(
            PosixDisk(),
            PurePath(options.path),
            SparkMap(spark),
            options.at_offset,
            options.at_ms,
        )
        say(f"replaying {view.entries:,} entries")
        instances = replay(spark, view).persist()
        try:
            counts = _counts(instances)
            if options.table is not None:
                _write(instances, options, view)
            rows = () if options.table is not None else _shown(instances, options.show)
            say("comparing")
            checked = Checked() if live is None else check_against(spark, instances, live)
        finally:
            instances.unpersist()
    alive = [(count, row) for row, deleted, _, count in counts if not deleted]
    return ReplayReport(
        ok=not checked.differences,
        source=options.path,
        as_of=view.end,
        snapshot=view.snapshot,
        entries=view.entries,
        instances=sum(count for count, _ in alive),
        deleted=sum(count for _, deleted, _, count in counts if deleted),
        doubtful=sum(count for _, _, doubtful, count in counts if doubtful),
        states=tuple(_by_state(alive)),
        table=options.table,
        rows=rows,
        **msgspec.structs.asdict(checked),
        seconds=round((clock.monotonic_us() - began_us) / US_PER_S, 3),
    )


def _check(options: ReplayOptions, live: LiveState | None) -> None:
    if options.at_offset is not None and options.at_ms is not None:
        raise RequestError("name an offset or a time, not both")
    if live is not None and (options.at_offset is not None or options.at_ms is not None):
        raise RequestError("the live state is compared with the end of the log: name no offset")
    if options.format not in FORMATS:
        raise RequestError(f"a table is one of {', '.join(FORMATS)}, not {options.format!r}")
    if not PurePath(options.path).is_absolute():
        raise RequestError(f"name {options.path} with its whole path: tasks run elsewhere")


def replay(spark: SparkSession, view: MachineLogView) -> DataFrame:
    """A row for each instance the log speaks of."""
    rows = read_items(spark, view.splits, read_split, ROWS)
    # As many as there are files, which are of one size: more would be tasks without work.
    count = max(len(view.splits), spark.sparkContext.defaultParallelism)
    ordered = rows.repartition(count, "instance_id").sortWithinPartitions(
        "instance_id", "wal_offset"
    )
    return ordered.mapInArrow(partial(_fold_batches, view.end), to_spark(INSTANCES))


def _fold_batches(as_of: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = (
        row
        for batch in batches
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    yield from in_batches(fold(rows, as_of), INSTANCES)


def fold(rows: Iterable[tuple[str, int, int, bytes]], as_of: int) -> Iterator[tuple[Any, ...]]:
    """Rows in the order of instance and log become one row for each instance."""
    for _, entries in itertools.groupby(rows, key=_name_of):
        yield from _OneInstance().rows(entries, as_of)


class _OneInstance(MachineSink):
    """The tables of a fold over the entries about a single instance, and a row of what they say.
    Definitions are not among its entries: it needs none."""

    def __init__(self) -> None:
        self._instances: dict[str, Instance] = {}
        self._deleted: Instance | None = None
        """The last one of this id, if it was deleted."""
        self._fold = MachineFold({}, self._instances, self)

    def rows(
        self, entries: Iterable[tuple[str, int, int, bytes]], as_of: int
    ) -> Iterator[tuple[Any, ...]]:
        for name, offset, kind, payload in entries:
            if kind == FROM_SNAPSHOT:
                self._instances[name] = msgspec.msgpack.decode(payload, type=Instance)
            else:
                self._fold.take(EntryType(kind), payload, offset)
        for instance in self._instances.values():
            yield _row(instance, False, as_of)
        if self._deleted is not None and not self._instances:
            yield _row(self._deleted, True, as_of)

    def deleted(self, before: Instance, offset: int, at: int) -> None:
        self._deleted = msgspec.structs.replace(before, last_wal_offset=offset, updated_at=at)


def _name_of(row: tuple[str, int, int, bytes]) -> str:
    return row[0]


def _row(instance: Instance, deleted: bool, as_of: int) -> tuple[Any, ...]:
    return (
        instance.id,
        instance.machine,
        instance.version,
        instance.state,
        instance.ctx.decode(),
        instance.created_at * _US_PER_MS,
        instance.updated_at * _US_PER_MS,
        instance.last_wal_offset,
        instance.doubtful,
        deleted,
        as_of,
    )


def _counts(instances: DataFrame) -> list[tuple[tuple[str, int, str], bool, bool, int]]:
    grouped = instances.groupBy("machine", "version", "state", "deleted", "doubtful").count()
    return [
        ((row.machine, row.version, row.state), row.deleted, row.doubtful, row["count"])
        for row in grouped.collect()
    ]


def _by_state(alive: list[tuple[int, tuple[str, int, str]]]) -> Iterator[StateCount]:
    totals: dict[tuple[str, int, str], int] = {}
    for count, position in alive:
        totals[position] = totals.get(position, 0) + count
    for position in sorted(totals):
        yield StateCount(*position, totals[position])


def _write(instances: DataFrame, options: ReplayOptions, view: MachineLogView) -> None:
    """Exactly once: the same instances again are the same write."""
    assert options.table is not None
    write_id = f"replay-{view.end}-{options.at_ms}"
    writer = instances.write.format("headwater-table").mode("append")
    writer.option("path", options.table).option("table", options.format).option(
        "writeId", write_id
    ).save()


def _shown(instances: DataFrame, show: int) -> tuple[dict[str, Any], ...]:
    from pyspark.sql import functions as f

    texts = {name: f.date_format(name, _ISO) for name in ("created_at", "updated_at")}
    rows = instances.drop("as_of").withColumns(texts).orderBy("instance_id").limit(show)
    return tuple(row.asDict() for row in rows.collect())
