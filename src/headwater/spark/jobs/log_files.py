"""One log file as one item of work: surveyed, noted, and cut into the rows of each topic.

What a file says of a topic is one `LoggedRows` for each run that wrote into it: where its records
lie, as columns, and the control frames between them. Payloads are never copied: a task that needs
one maps the file. A stretch has an order, and taking stretches by it gives every topic its own
order back, over files, shards and restarts, as a replay does.

The files of one log directory are surveyed and noted by the workers of a job (`read_log`). And it
is here which topic a name stands for, in a data directory that no process changes (`topic_ids`).
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import numpy
from numpy.typing import NDArray

from headwater.core.errors import DamageError, FormatError, NewerFormatError, RequestError
from headwater.disk import Disk, map_file
from headwater.format.control_frames import (
    IDEMPOTENCY,
    CheckpointEntry,
    decode_checkpoint_mark,
    decode_router_marks,
)
from headwater.format.frame import FrameType, UnknownFrameError, decode_frame
from headwater.format.names import WAL_DIRECTORY
from headwater.format.segment.run import at_each_byte
from headwater.format.snapshot import Snapshot
from headwater.format.table import FrameTable, read_table
from headwater.recovery.topics.catalog import Catalog, TopicNotes
from headwater.recovery.topics.parallel_survey import (
    FileSurvey,
    FileSurveyTask,
    survey_file,
    survey_in_parallel,
)
from headwater.recovery.topics.report import WalReport
from headwater.recovery.topics.scan import FileScan, Surroundings, is_zero
from headwater.recovery.topics.snapshots import load_snapshot
from headwater.recovery.topics.survey import (
    FileTask,
    ShardSurvey,
    find_shard_directories,
    read_log_file,
)
from headwater.spark.jobs.job import MapAll
from headwater.store.segment import file_work


class MappedFiles:
    """Log files as mapped memory, each opened once for a task."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._views: dict[str, memoryview] = {}

    def view(self, path: str) -> memoryview:
        """The whole file. The caller must know that no process shortens it meanwhile."""
        view = self._views.get(path)
        if view is None:
            file_path = PurePath(path)
            with file_work(file_path):
                view = map_file(self._disk, file_path)
            self._views[path] = view
        return view


_APPEND: Final = int(FrameType.APPEND)
_MARK: Final = int(FrameType.CHECKPOINT_MARK)
_KEY: Final = int(FrameType.IDEMPOTENCY)
_EXPIRES_AT: Final = IDEMPOTENCY.offset_of("expires_ts")
# What a topic's segments follow from. Marks speak of many topics and are taken apart.
_OF_TOPICS: Final = numpy.isin(
    numpy.arange(256),
    [
        FrameType.APPEND,
        FrameType.TOPIC_CREATE,
        FrameType.TOPIC_DELETE,
        FrameType.DELETE,
        FrameType.EVICT_WATERMARK,
        FrameType.CONFIG_UPDATE,
        FrameType.LEASE,
        FrameType.HEAD_WATERMARK,
        FrameType.IDEMPOTENCY,
    ],
)


# Routers at work: copies they made are in no log, so that a log with these does not say everything.
_ROUTING: Final = numpy.isin(
    numpy.arange(256),
    [
        FrameType.ROUTER_CREATE,
        FrameType.ROUTER_DELETE,
        FrameType.ROUTER_PLACES,
        FrameType.SEQ_CEILINGS,
    ],
)


class Order(NamedTuple):
    """Where a stretch belongs: what a smaller one says was written earlier, for every topic."""

    run: int
    log: int
    number: int


class Control(NamedTuple):
    """The bytes of a control frame, or what a checkpoint mark says of the topic."""

    at: int
    """So many of the stretch's records stand before it."""
    what: bytes | CheckpointEntry


@dataclass(slots=True)
class LoggedRows:
    """One topic in one stretch of the log: its records as columns, in the order of the log."""

    topic_id: int
    order: Order
    path: str
    offsets: NDArray[numpy.int64]
    sizes: NDArray[numpy.int64]
    seqs: NDArray[numpy.int64]
    ts: NDArray[numpy.uint64]
    flags: NDArray[numpy.uint8]
    controls: list[Control] = field(default_factory=list)

    def part(self, start: int, end: int) -> LoggedRows:
        """Some of the records, without what stands between them."""
        return LoggedRows(
            self.topic_id,
            self.order,
            self.path,
            self.offsets[start:end],
            self.sizes[start:end],
            self.seqs[start:end],
            self.ts[start:end],
            self.flags[start:end],
        )


class Covered(NamedTuple):
    """Frames up to this number of this log are in the snapshot."""

    frame: int
    log_id: int


def covered_by(data: PurePath | None, snapshot: Snapshot | None) -> dict[PurePath, Covered]:
    """What a data directory's snapshot covers, by log directory."""
    if data is None or snapshot is None:
        return {}
    root = data / WAL_DIRECTORY
    return {
        root / meta.directory if meta.directory else root: Covered(meta.covered_frame, meta.log_id)
        for meta in snapshot.shards
    }


class GivenGroups(NamedTuple):
    spans: bytes
    end: int
    """Where the last of them ends."""


@dataclass(frozen=True, slots=True)
class FileJob:
    """What is wanted of one file."""

    task: FileSurveyTask
    log: int
    """Which of the logs it belongs to, in the order of a replay."""
    covered: Covered | None = None
    """What the snapshot knows already."""
    with_rows: bool = True
    """False: only notes are taken."""
    with_marks: bool = False
    """Checkpoint marks are part of a topic's history: there are no segments they could be in."""
    now_ms: int = 0
    """Keys that expired before are left out."""
    given: GivenGroups | None = None
    """Groups known from reading in order; None: scan for them."""


@dataclass(slots=True)
class ScannedFile:
    survey: FileSurvey
    notes: list[tuple[Order, dict[int, TopicNotes]]] = field(default_factory=list)
    rows: list[LoggedRows] = field(default_factory=list)
    ends_in_zeros: bool = True
    """Nothing but zeros behind the last whole group."""
    routing: bool = False
    """Routers were made, removed or at work."""
    router_marks: dict[int, int] = field(default_factory=dict)
    """Of each router that is marked, the largest number of a mark."""


def scan_log_file(disk: Disk, job: FileJob) -> ScannedFile:
    """Survey one file. What is wrong with it is in the survey, for the caller to judge."""
    path = job.task.file.path
    buffer = read_log_file(disk, path)
    if job.given is None:
        survey, table = survey_file(buffer, job.task)
    else:
        survey, table = _given(buffer, job.task, job.given)
    scanned = ScannedFile(survey, ends_in_zeros=is_zero(buffer[survey.scan.end :]))
    try:
        if table is not None and len(table):
            _cut(scanned, table, buffer, job)
    except UnknownFrameError as error:
        raise NewerFormatError(error.reason, path=path, offset=error.offset) from error
    except FormatError as error:
        raise DamageError(error.reason, path=path, offset=error.offset) from error
    survey.scan.spans = array("Q")  # of use here only, and large
    return scanned


def _given(
    buffer: memoryview, task: FileSurveyTask, given: GivenGroups
) -> tuple[FileSurvey, FrameTable]:
    scan = FileScan(task.file.path, task.file.number, end=given.end, length=len(buffer))
    scan.spans.frombytes(given.spans)
    groups = list(zip(scan.spans[0::4], scan.spans[1::4], strict=True))
    survey = FileSurvey(scan, None)
    survey.chain.log_id = task.log_id
    return survey, read_table(buffer, groups)


class _Stretch(NamedTuple):
    """Frames of one topic and run: their rows in the table, ascending."""

    topic_id: int
    run: int
    rows: NDArray[numpy.int64]


Marks = dict[tuple[int, int], list[tuple[int, CheckpointEntry]]]
"""Topic and run -> the row of each mark about it, and what it says."""


def _cut(scanned: ScannedFile, table: FrameTable, buffer: memoryview, job: FileJob) -> None:
    """Into one stretch for each topic and run."""
    spans = numpy.array(scanned.survey.scan.spans, numpy.uint64).reshape(-1, 4).astype(numpy.int64)
    counts = numpy.diff(table.first_rows)
    runs = numpy.repeat(spans[:, 2], counts)
    numbers = numpy.repeat(spans[:, 3] + 1 - table.first_rows[:-1], counts)
    covered = _covered(job, scanned.survey.chain.log_id)
    wanted = numpy.flatnonzero(numbers + numpy.arange(len(table)) > covered)
    _note_routers(scanned, table, buffer, wanted)
    marks = _marks(table, buffer, runs, wanted)
    notes: dict[int, dict[int, TopicNotes]] = defaultdict(dict)
    for stretch in _stretches(table, runs, wanted, marks):
        about = marks.get((stretch.topic_id, stretch.run), [])
        noted = notes[stretch.run][stretch.topic_id] = TopicNotes(changed=bool(len(stretch.rows)))
        for _, entry in about:
            noted.take_mark(entry)
        controls = _controls(table, buffer, stretch.rows, noted, job.now_ms)
        if job.with_rows:
            order = Order(stretch.run, job.log, job.task.file.number)
            rows = _topic_rows(table, stretch, order, job.task.file.path)
            between = controls + (about if job.with_marks else [])
            rows.controls = _positioned(between, stretch.rows[table.type[stretch.rows] == _APPEND])
            scanned.rows.append(rows)
    number = job.task.file.number
    scanned.notes = [(Order(run, job.log, number), by_topic) for run, by_topic in notes.items()]


def _covered(job: FileJob, log_id: int | None) -> int:
    """A directory may have been given a new log since: the snapshot says nothing about that."""
    known = job.covered
    return known.frame if known is not None and log_id in (None, known.log_id) else 0


def _note_routers(
    scanned: ScannedFile, table: FrameTable, buffer: memoryview, wanted: NDArray[numpy.int64]
) -> None:
    types = table.type[wanted]
    scanned.routing = bool(_ROUTING[types].any())
    for row in wanted[types == FrameType.ROUTER_MARK].tolist():
        start = int(table.offset[row])
        frame = decode_frame(buffer, start, start + int(table.size[row]), verify=False)
        for mark in decode_router_marks(frame):
            number = scanned.router_marks.get(mark.router_id, 0)
            scanned.router_marks[mark.router_id] = max(number, mark.number)


def _marks(
    table: FrameTable,
    buffer: memoryview,
    runs: NDArray[numpy.int64],
    wanted: NDArray[numpy.int64],
) -> Marks:
    marks: Marks = defaultdict(list)
    for row in wanted[table.type[wanted] == _MARK].tolist():
        start = int(table.offset[row])
        frame = decode_frame(buffer, start, start + int(table.size[row]), verify=False)
        for entry in decode_checkpoint_mark(frame):
            marks[entry.topic_id, int(runs[row])].append((row, entry))
    return dict(marks)


def _stretches(
    table: FrameTable, runs: NDArray[numpy.int64], wanted: NDArray[numpy.int64], marks: Marks
) -> Iterator[_Stretch]:
    """Frames by run and topic, and an empty stretch for what only a mark speaks of."""
    rows = wanted[_OF_TOPICS[table.type[wanted]]]
    seen = set()
    if len(rows):
        topics, in_run = table.topic_id[rows], runs[rows]
        order = numpy.lexsort((topics, in_run))  # stable: within a topic, the order of the log
        rows, topics, in_run = rows[order], topics[order], in_run[order]
        changes = (numpy.diff(topics) != 0) | (numpy.diff(in_run) != 0)
        for some in numpy.split(rows, numpy.flatnonzero(changes) + 1):
            stretch = _Stretch(int(table.topic_id[some[0]]), int(runs[some[0]]), some)
            seen.add((stretch.topic_id, stretch.run))
            yield stretch
    for topic_id, run in marks.keys() - seen:
        yield _Stretch(topic_id, run, numpy.empty(0, numpy.int64))


def _controls(
    table: FrameTable,
    buffer: memoryview,
    rows: NDArray[numpy.int64],
    noted: TopicNotes,
    now_ms: int,
) -> list[tuple[int, bytes | CheckpointEntry]]:
    """Row and bytes of each control frame; what it says is noted."""
    rows = rows[table.type[rows] != _APPEND]
    is_key = table.type[rows] == _KEY
    if is_key.any():
        keys = rows[is_key]
        expires = at_each_byte(buffer, "<u8")[table.data_at[keys] + _EXPIRES_AT]
        rows = numpy.sort(numpy.concatenate((rows[~is_key], keys[expires > now_ms])))
    controls: list[tuple[int, bytes | CheckpointEntry]] = []
    for row in rows.tolist():
        start = int(table.offset[row])
        end = start + int(table.size[row])
        noted.take(decode_frame(buffer, start, end, verify=False))
        controls.append((row, bytes(buffer[start:end])))
    return controls


def _positioned(between: list[tuple[int, Any]], appended: NDArray[numpy.int64]) -> list[Control]:
    """The control frames in their order, each behind the records that stand before it."""
    between.sort(key=lambda each: each[0])
    positions = numpy.searchsorted(appended, [row for row, _ in between]).tolist()
    return [Control(at, what) for at, (_, what) in zip(positions, between, strict=True)]


def _topic_rows(table: FrameTable, stretch: _Stretch, order: Order, path: PurePath) -> LoggedRows:
    rows = stretch.rows[table.type[stretch.rows] == _APPEND]
    return LoggedRows(
        stretch.topic_id,
        order,
        str(path),
        table.offset[rows],
        table.size[rows],
        table.seq[rows].astype(numpy.int64),
        table.ts[rows],
        table.flags[rows],
    )


Noted = tuple[Order, dict[int, TopicNotes]]


MakeJob = Callable[[FileSurveyTask, GivenGroups | None], FileJob]
Scan = Callable[[Sequence[FileJob]], Sequence[ScannedFile]]


@dataclass(frozen=True, slots=True)
class LogRead:
    report: WalReport
    files: dict[PurePath, ScannedFile]
    """By path; those of a log with agreed losses were read by the groups found in order."""

    @property
    def changed(self) -> PurePath | None:
        """A file that was not the same when it was read again, and yet is not damaged."""
        for shard in self.report.shards:
            for scan in shard.files:
                result = self.files.get(scan.path)
                if not shard.repairs.skips and (result is None or result.survey.scan is not scan):
                    return scan.path
        return None

    def notes(self) -> list[Noted]:
        return [noted for result in self.files.values() for noted in result.notes]


def read_log(
    disk: Disk, wal_directory: PurePath, job: MakeJob, scan: Scan, *, deep: bool = False
) -> LogRead:
    """Scan every file by itself. The caller decides whether to trust the log."""
    files: dict[PurePath, ScannedFile] = {}

    def survey(tasks: Sequence[FileSurveyTask]) -> list[FileSurvey]:
        results = scan([job(task, None) for task in tasks])
        files.update(zip((task.file.path for task in tasks), results, strict=True))
        return [each.survey for each in results]

    report = survey_in_parallel(disk, wal_directory, survey, deep=deep)
    for shard in report.shards:
        if shard.repairs.skips and not report.refusals:
            jobs = [job(task, given) for task, given in _as_read(shard)]
            paths = [scan.path for scan in shard.files]
            files.update(zip(paths, scan(jobs), strict=True))
    return LogRead(report, files)


def _as_read(shard: ShardSurvey) -> list[tuple[FileSurveyTask, GivenGroups]]:
    """Its files with the groups that were found by reading in order."""
    return [
        (
            FileSurveyTask(FileTask(scan.path, scan.number, Surroundings()), shard.chain.log_id),
            GivenGroups(scan.spans.tobytes(), scan.end),
        )
        for scan in shard.files
    ]


def topic_ids(
    disk: Disk, directory: PurePath, names: Sequence[str], map_all: MapAll
) -> frozenset[int]:
    """The ids of topics by their names; a name that no topic has is refused."""
    snapshot = load_snapshot(disk, directory, [])
    log = noted_log(disk, directory, snapshot, map_all)
    log.report.raise_if_refused()
    catalog = catalog_of(log, snapshot)
    ids = []
    for name in names:
        topic = catalog.find(name)
        if topic is None:
            raise RequestError(f"there is no topic {name!r} in {directory}")
        ids.append(topic.topic_id)
    return frozenset(ids)


def noted_log(
    disk: Disk,
    directory: PurePath,
    snapshot: Snapshot | None,
    map_all: MapAll,
    *,
    deep: bool = False,
) -> LogRead:
    """Every log file scanned, and noted what it says of topics, but for their records."""
    wal = directory / WAL_DIRECTORY
    labels = {path: label for label, path in enumerate(find_shard_directories(disk, wal))}
    covered = covered_by(directory, snapshot)

    def job(task: FileSurveyTask, given: GivenGroups | None) -> FileJob:
        where = task.file.path.parent
        return FileJob(task, labels[where], covered.get(where), with_rows=False, given=given)

    return read_log(disk, wal, job, partial(map_all, partial(scan_log_file, disk)), deep=deep)


def catalog_of(log: LogRead, snapshot: Snapshot | None) -> Catalog:
    catalog = Catalog(snapshot)
    for _, notes in sorted(log.notes(), key=lambda noted: noted[0]):
        catalog.take(notes)
    return catalog
