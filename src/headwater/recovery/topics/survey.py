"""Survey: what is in a log directory. Reads everything, changes nothing.

Finds the shards (flat `wal/`, `wal/shard-NN/`, or both after a change of their number), their
files in order, and what CURRENT and REPAIRS say.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final

from headwater.core.arrays import numpy
from headwater.core.errors import FormatError
from headwater.core.units import MIB
from headwater.disk import Disk, OpenMode, map_file, opened, read_whole
from headwater.format.log_state import (
    CURRENT_BYTES_MAX,
    REPAIRS_BYTES_MAX,
    Current,
    Repairs,
    decode_current,
    decode_repairs,
)
from headwater.format.mark import MARK_BYTES, CommitMark, decode_mark
from headwater.format.names import (
    CURRENT_NAME,
    PREPARED_NAME,
    QUARANTINE_DIRECTORY,
    REPAIRS_NAME,
    parse_shard_directory_name,
    parse_wal_file_name,
    wal_file_name,
)
from headwater.recovery.directory import access_error, accessing, list_directory, sort_names
from headwater.recovery.topics.scan import (
    NOTHING_COVERED,
    CoveredFrames,
    FileScan,
    MarkChain,
    Surroundings,
    is_zero,
    scan_file,
)
from headwater.recovery.topics.table import CurrentState, FileVerdict

_OWN_NAMES: Final = frozenset({CURRENT_NAME, REPAIRS_NAME, PREPARED_NAME, QUARANTINE_DIRECTORY})
_CHUNK_BYTES: Final = MIB
_ZEROS: Final = bytes(_CHUNK_BYTES)


@dataclass(frozen=True, slots=True)
class FileTask:
    """One log file to scan, and what is known of it from outside."""

    path: PurePath
    number: int
    around: Surroundings


@dataclass(slots=True)
class ShardSurvey:
    directory: PurePath
    files: list[FileScan] = field(default_factory=list)
    leftovers: list[PurePath] = field(default_factory=list)
    """Made but never used: an unfinished rotation or replace. Safe to remove."""
    untrimmed: list[PurePath] = field(default_factory=list)
    """Files older than CURRENT needs: an unfinished trim."""
    foreign: list[PurePath] = field(default_factory=list)
    current: Current | None = None
    current_state: CurrentState = CurrentState.ABSENT
    oldest_missing: bool = False
    repairs: Repairs = field(default_factory=Repairs)
    repairs_unreadable: bool = False
    chain: MarkChain = field(default_factory=MarkChain)

    @property
    def last(self) -> FileScan | None:
        return self.files[-1] if self.files else None

    @property
    def is_bare(self) -> bool:
        """There is nothing in the directory that belongs to a log, or pretends to."""
        return (
            self.current_state is CurrentState.ABSENT
            and not (self.files or self.foreign or self.leftovers or self.untrimmed)
            and not (self.repairs.skips or self.repairs_unreadable)
        )


def find_shard_directories(disk: Disk, wal_directory: PurePath) -> list[PurePath]:
    """Every directory that may hold log files: the flat one first, then one for each shard."""
    if not disk.is_directory(wal_directory):
        return []
    names = list_directory(disk, wal_directory)
    shards = [wal_directory / n for n in names if parse_shard_directory_name(n) is not None]
    return [wal_directory, *shards]


def survey_shard(
    disk: Disk,
    directory: PurePath,
    *,
    deep: bool = False,
    repairs: Repairs | None = None,
    covered: CoveredFrames = NOTHING_COVERED,
) -> ShardSurvey:
    """Survey one shard. `repairs` stands in for the REPAIRS file, to try out a plan.

    Of what is `covered` only as much is read as shows where the rest begins.
    """
    survey, tasks = begin_survey(disk, directory, deep=deep, repairs=repairs)
    for task in tasks:
        next_number = task.around.next_number
        if (
            next_number is not None
            and next_number - 1 <= covered.frame
            and survey.chain.log_id == covered.log_id
        ):
            survey.files.append(FileScan(task.path, task.number))
            survey.chain.trusted, survey.chain.next_frame = False, next_number
        else:
            around = replace(task.around, covered=covered)
            # Where most of it is passed over, a map spares reading what is not needed.
            mapped = covered is not NOTHING_COVERED
            task = replace(task, around=around)
            survey.files.append(_scan(disk, survey, task, mapped=mapped))
    return survey


def begin_survey(
    disk: Disk, directory: PurePath, *, deep: bool = False, repairs: Repairs | None = None
) -> tuple[ShardSurvey, list[FileTask]]:
    """Everything about a shard but its groups: names, CURRENT, REPAIRS, and what is to be read."""
    survey = ShardSurvey(directory)
    numbers = _sort_names(disk, survey)
    first_marks = {n: _first_mark(disk, survey, n) for n in numbers}
    _read_current(disk, survey, {mark.log_id for mark in first_marks.values() if mark is not None})
    if repairs is None:
        _read_repairs(disk, survey)
    else:
        survey.repairs = repairs
    current = survey.current
    if current is not None:
        survey.untrimmed = [
            directory / wal_file_name(n) for n in numbers if n < min(current.oldest, current.active)
        ]
        numbers = [n for n in numbers if n >= min(current.oldest, current.active)]
        survey.oldest_missing = bool(numbers) and numbers[0] != current.oldest
    numbers = _set_aside_unused(disk, survey, numbers)
    survey.current_state = _compare_current(survey, numbers)
    tasks = []
    for index, number in enumerate(numbers):
        following = numbers[index + 1] if index + 1 < len(numbers) else None
        mark = None if following is None else first_marks[following]
        next_chain = None if mark is None else mark.chain
        tasks.append(_task(survey, number, following, next_chain, deep))
    return survey, tasks


def read_log_file(
    disk: Disk, path: PurePath, *, start: int = 0, upto: int | None = None
) -> memoryview:
    """A log file, every byte at its offset. What is before `start` is not read and shows as zeros.

    A log file was made of zeros, and most of one may still be. The memory for them is only
    promised: pages that nothing is copied to are never filled.
    """
    with accessing(path), opened(disk, path, OpenMode.READ) as file:
        end = file.size() if upto is None else upto
        contents = numpy.zeros(end, numpy.uint8)
        for at in range(start, end, _CHUNK_BYTES):
            wanted = min(_CHUNK_BYTES, end - at)
            chunk = file.read(at, wanted)
            if chunk != _ZEROS[:wanted]:
                contents[at : at + len(chunk)] = numpy.frombuffer(chunk, numpy.uint8)
            if len(chunk) < wanted:
                contents = contents[: at + len(chunk)]
                break
        return contents.data.toreadonly()


def map_log_file(disk: Disk, path: PurePath) -> memoryview:
    """The same without a copy. Log files are never made shorter, so the map stays good."""
    with accessing(path):
        return map_file(disk, path)


def _sort_names(disk: Disk, survey: ShardSurvey) -> list[int]:
    """Log file numbers in order; everything else goes where it belongs."""
    directory = survey.directory
    names = list_directory(disk, directory)
    there = sort_names(directory, names, parse_wal_file_name, _is_own)
    ahead = [directory / PREPARED_NAME] if PREPARED_NAME in names else []
    survey.leftovers, survey.foreign = [*ahead, *there.leftovers], there.foreign
    return sorted(there.known.values())


def _is_own(name: str) -> bool:
    return name in _OWN_NAMES or parse_shard_directory_name(name) is not None


def _read_current(disk: Disk, survey: ShardSurvey, log_ids: set[int]) -> None:
    """`log_ids` are those that the files begin with: one of them must be CURRENT's."""
    path = survey.directory / CURRENT_NAME
    if not disk.exists(path):
        return
    try:
        current = decode_current(_read_small(disk, path, CURRENT_BYTES_MAX))
    except FormatError:
        survey.current_state = CurrentState.UNREADABLE
        return
    if log_ids and current.log_id not in log_ids:
        survey.current_state = CurrentState.OF_ANOTHER_LOG
        return
    survey.current = current
    survey.chain.log_id = current.log_id


def _read_repairs(disk: Disk, survey: ShardSurvey) -> None:
    path = survey.directory / REPAIRS_NAME
    if not disk.exists(path):
        return
    try:
        survey.repairs = decode_repairs(_read_small(disk, path, REPAIRS_BYTES_MAX))
    except FormatError:
        survey.repairs_unreadable = True


def _read_small(disk: Disk, path: PurePath, limit: int) -> bytes:
    with accessing(path):
        return read_whole(disk, path, limit)


def _set_aside_unused(disk: Disk, survey: ShardSurvey, numbers: list[int]) -> list[int]:
    """Drop trailing files that are all zeros and that CURRENT does not name: a rotation that
    was cut off before anything was written there."""
    kept = list(numbers)
    named = survey.current.active if survey.current is not None else None
    while kept and kept[-1] != named:
        path = survey.directory / wal_file_name(kept[-1])
        if not is_zero(read_log_file(disk, path)):
            break
        survey.leftovers.append(path)
        kept.pop()
    return kept


def _compare_current(survey: ShardSurvey, numbers: list[int]) -> CurrentState:
    current = survey.current
    if current is None:
        return survey.current_state
    if current.active not in numbers:
        return CurrentState.NAMES_MISSING
    return CurrentState.NAMES_LAST if numbers[-1] == current.active else CurrentState.NAMES_EARLIER


def _task(
    survey: ShardSurvey, number: int, following: int | None, next_chain: int | None, deep: bool
) -> FileTask:
    current = survey.current
    named = current is not None and current.active == number
    around = Surroundings(
        next_number=following,
        next_chain=next_chain,
        witnessed=current.durable_offset if named and current is not None else 0,
        made_bytes=current.active_bytes if named and current is not None else None,
        skips=survey.repairs.of_file(number),
        deep=deep,
    )
    return FileTask(survey.directory / wal_file_name(number), number, around)


def _scan(disk: Disk, survey: ShardSurvey, task: FileTask, *, mapped: bool = False) -> FileScan:
    scan = FileScan(task.path, task.number)
    read = map_log_file if mapped else read_log_file
    scan_file(read(disk, scan.path), scan, survey.chain, task.around)
    if scan.verdict is FileVerdict.DAMAGED:
        # Later files are still scanned, so that one report has everything.
        survey.chain.trusted = False
    return scan


def _first_mark(disk: Disk, survey: ShardSurvey, number: int) -> CommitMark | None:
    """The mark a file begins with, when it can be read."""
    path = survey.directory / wal_file_name(number)
    try:
        with opened(disk, path, OpenMode.READ) as file:
            head = file.read(0, MARK_BYTES)
        return decode_mark(memoryview(head), 0, len(head))
    except FormatError:
        return None
    except OSError as error:
        raise access_error(path, error) from error
