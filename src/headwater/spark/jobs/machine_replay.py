"""The job `replay`: the machines' log becomes a table of instances, as of an offset or a time.

Entries are shuffled by instance, put in the order of the log, and folded with the rules a start
uses, so the result is what the store would have. With a live state to compare with, every
difference is reported; what changed meanwhile is counted and is no difference.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import RequestError
from headwater.core.units import US_PER_S
from headwater.disk import PosixDisk
from headwater.format.machines.entry import EntryType
from headwater.model.machines.instance import Instance
from headwater.recovery.history.machines import MachineFold, MachineSink
from headwater.spark.jobs.job import NoProgress, Progress, Report, SparkMap, read_items, tasks_shown
from headwater.spark.jobs.machine_check import Checked, Difference, LiveState, check_against
from headwater.spark.jobs.machine_log import (
    FROM_SNAPSHOT,
    ROWS,
    MachineLogView,
    read_split,
    view_machine_log,
)
from headwater.spark.runtime.arrow_schema import in_batches, to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
        compared=checked.compared,
        changed_since=checked.changed_since,
        differences=checked.differences,
        listed=checked.listed,
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
