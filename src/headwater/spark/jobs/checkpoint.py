"""`checkpoint`: log files into the segments of a new data directory, in bulk.

Each log file is scanned by itself, each topic is replayed by itself, each segment is written by
itself; what goes from step to step is where records lie, never a payload. The bytes are those that
the engine's own checkpoint writes for the same log with the same segment settings. The snapshot is
written last: with it the result is a data directory that Headwater opens and the source reads.

The source must not be in use. A second run finds the segments that are whole and does the rest.
Segments of a cold tier stay there, and both directories point at them then.

The output holds segments, and a snapshot when everything is done. Anything else in it is not ours,
and a segment that the plan does not know belongs to another log: both are refused before anything
is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec

from headwater.config.store import SegmentSettings
from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import RequestError
from headwater.core.units import US_PER_S
from headwater.disk import Disk, PosixDisk, replace_file, sync_names
from headwater.disk.posix import LOCK_NAME
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import parse_segment_file, topic_directory_name
from headwater.format.snapshot import META_DIRECTORY, Snapshot, encode_snapshot, snapshot_name
from headwater.recovery.directory import accessing
from headwater.recovery.topics.catalog import KnownTopic
from headwater.recovery.topics.scan import FileScan
from headwater.spark.jobs.checkpoint_source import (
    LogsRead,
    Planned,
    SparkWorkers,
    Workers,
    read_logs,
)
from headwater.spark.jobs.job import NoProgress, Progress, Report, tasks_shown
from headwater.spark.jobs.log_directories import find_logs, owned
from headwater.spark.jobs.segment_plan import PlanTask, Written
from headwater.store.appender import make_directories
from headwater.store.segment import file_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULTS = SegmentSettings()
BYTES_PER_MB = 1_000_000


class CheckpointOptions(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """A data directory that no process uses, a directory of log files, or one that holds
    several."""
    output: str
    """A directory that is empty, or that an earlier run of the same job left."""
    cold: str | None = None
    """The cold tier of the source, if it has one."""
    topics: tuple[str, ...] = ()
    """These only; all when none is named."""
    segment_max_events: int = _DEFAULTS.segment_max_events
    segment_max_bytes: int = _DEFAULTS.segment_max_bytes


class CutTail(msgspec.Struct, frozen=True, kw_only=True):
    """An unfinished write at the end of a log, left out."""

    file: str
    offset: int


class CheckpointReport(Report, frozen=True, kw_only=True):
    source: str
    output: str
    files: int
    """Log files that were read."""
    log_bytes: int
    """Bytes of whole groups in them."""
    records: int
    """Records in them,"""
    absorbed: int
    """of which segments had these already,"""
    duplicates: int
    """these were there twice,"""
    left_out: int
    """and these no segment needs: caps, ages or deletes took them."""
    written: int
    """Records in the segments that were made,"""
    dead: int
    """and seqs in them that have none: deleted, or lost in a crash."""
    topics: int
    segments: int
    segments_found: int
    """Of the segments, those that were there already, as they should be."""
    data_bytes: int
    """Bytes of records in the segments."""
    cut_tails: tuple[CutTail, ...]
    seconds: float
    mb_per_second: float
    """Log bytes, for the whole job."""


def run(
    spark: SparkSession, options: CheckpointOptions, progress: Progress | None = None
) -> CheckpointReport:
    """Checkpoint with the tasks of a session."""
    workers = SparkWorkers(spark)
    try:
        with tasks_shown(spark, progress):
            return checkpoint(PosixDisk(), SystemClock(), workers, options, progress)
    finally:
        workers.close()


def checkpoint(
    disk: Disk,
    clock: Clock,
    workers: Workers,
    options: CheckpointOptions,
    progress: Progress | None = None,
) -> CheckpointReport:
    """The same with any workers."""
    say = (progress or NoProgress()).say
    source, output = PurePath(options.path), PurePath(options.output)
    began_us = clock.monotonic_us()
    settings = SegmentSettings(
        segment_max_events=options.segment_max_events, segment_max_bytes=options.segment_max_bytes
    )
    log_directories = find_logs(disk, source)
    if output == source or source in output.parents:
        raise RequestError(f"{output} is inside the source; choose another output")
    with owned(disk, [log.data for log in log_directories if log.data is not None]):
        begin_output(disk, output)
        say("scanning the log")
        now_ms = clock.wall_ms()
        logs = read_logs(disk, log_directories, workers, now_ms)
        tasks = [
            PlanTask(
                known,
                logs.segments_of(known.topic_id),
                options.cold,
                settings,
                now_ms,
                logs.clean_runs,
            )
            for known in _wanted(logs, options.topics)
        ]
        say("replaying topics")
        planned = workers.plan(tasks, logs.chosen)
        refuse_strangers(
            disk, output, {each.meta.topic_id: set(each.first_seqs) for each in planned}
        )
        say("writing segments")
        written = workers.write(output)
        finish_output(disk, output, _snapshot(logs, planned))
    seconds = (clock.monotonic_us() - began_us) / US_PER_S
    return _report(options, logs.scans, logs.torn, planned, written, seconds)


def _wanted(logs: LogsRead, names: Sequence[str]) -> list[KnownTopic]:
    if not names:
        return list(logs.catalog)
    by_name = {name: logs.catalog.find(name) for name in names}
    for name, known in by_name.items():
        if known is None:
            raise RequestError(f"there is no topic {name!r} in this log")
    return [known for known in by_name.values() if known is not None]


def _snapshot(logs: LogsRead, planned: Sequence[Planned]) -> Snapshot:
    metas = sorted((each.meta for each in planned), key=lambda meta: meta.topic_id)
    return Snapshot(
        number=1 if logs.snapshot is None else logs.snapshot.number + 1,
        next_topic_id=logs.catalog.next_topic_id,
        topics=tuple(metas),
        shards=(),
        epochs=dict(logs.catalog.epochs),
        routers=logs.routers,
    )


def _report(
    options: CheckpointOptions,
    scans: Sequence[FileScan],
    torn: Sequence[FileScan],
    planned: Sequence[Planned],
    written: Sequence[Written],
    seconds: float,
) -> CheckpointReport:
    counts = [each.counts for each in planned]
    log_bytes = sum(scan.end for scan in scans)
    return CheckpointReport(
        ok=True,
        source=options.path,
        output=options.output,
        files=len(scans),
        log_bytes=log_bytes,
        records=sum(count.records for count in counts),
        absorbed=sum(count.absorbed for count in counts),
        duplicates=sum(count.duplicates for count in counts),
        left_out=sum(count.left_out for count in counts),
        written=sum(each.records for each in written),
        dead=sum(each.dead for each in written),
        topics=len(planned),
        segments=len(written),
        segments_found=sum(each.skipped for each in written),
        data_bytes=sum(each.data_bytes for each in written),
        cut_tails=tuple(CutTail(file=str(scan.path), offset=scan.end) for scan in torn),
        seconds=round(seconds, 3),
        mb_per_second=round(log_bytes / BYTES_PER_MB / max(seconds, 1e-6), 1),
    )


_OURS = frozenset({LOCK_NAME, TOPICS_DIRECTORY, META_DIRECTORY})


def begin_output(disk: Disk, output: PurePath) -> None:
    """Have the directory, durably; refuse one that holds something else."""
    with accessing(output):
        if disk.exists(output) and not disk.is_directory(output):
            raise RequestError(f"{output} is not a directory; choose another output")
        if not disk.is_directory(output.parent):
            raise RequestError(f"there is no directory {output.parent} to put the output in")
        make_directories(disk, output / TOPICS_DIRECTORY, ours=2)
        strange = sorted(set(disk.list_directory(output)) - _OURS)
    if strange:
        raise RequestError(
            f"{output} holds {strange[0]}, which no checkpoint leaves; choose another output"
        )


def refuse_strangers(disk: Disk, output: PurePath, planned: Mapping[int, Set[int]]) -> None:
    """`planned` has the first seqs of each topic. What is there beyond them is another log's."""
    root = output / TOPICS_DIRECTORY
    known = {topic_directory_name(topic_id): seqs for topic_id, seqs in planned.items()}
    with file_work(root):
        for name in disk.list_directory(root):
            if name not in known:
                raise _stranger(root / name)
            for file in disk.list_directory(root / name):
                parsed = parse_segment_file(file)
                if parsed is None or parsed[0] not in known[name]:
                    raise _stranger(root / name / file)


def _stranger(path: PurePath) -> RequestError:
    return RequestError(
        f"{path} was not made from this log with these settings; "
        "choose another output, or remove this one"
    )


def finish_output(disk: Disk, output: PurePath, snapshot: Snapshot) -> None:
    """Make all names durable, then write the snapshot: now it is a data directory."""
    root, meta = output / TOPICS_DIRECTORY, output / META_DIRECTORY
    with file_work(output):
        for name in disk.list_directory(root):
            sync_names(disk, root / name)
        sync_names(disk, root)
        if not disk.is_directory(meta):
            disk.make_directory(meta)
        sync_names(disk, output)
        replace_file(disk, meta / snapshot_name(snapshot.number), encode_snapshot(snapshot))
