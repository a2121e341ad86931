"""A survey in parallel: every log file by itself, in any order and anywhere, joined afterwards.

What one file needs of the others is in its task: where the next one takes over, what CURRENT knew.
Only the chain of marks goes from file to file. The survey of a file takes its first mark as it
comes, and the join compares that with the file before. Where anything is not as it should be, the
shard is surveyed once more in order: there is one judge of damage, and it reads from the beginning
(I5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final

from headwater.core.errors import FormatError
from headwater.disk import Disk
from headwater.format.mark import MARK_BYTES, CommitMark, decode_mark
from headwater.format.table import FrameTable, read_table
from headwater.recovery.topics.report import WalReport, report_on, without_bare
from headwater.recovery.topics.scan import FileScan, MarkChain, Surroundings, scan_file
from headwater.recovery.topics.survey import (
    FileTask,
    ShardSurvey,
    begin_survey,
    find_shard_directories,
    survey_shard,
)
from headwater.recovery.topics.table import FileVerdict

_FINE: Final = frozenset({FileVerdict.CLEAN})
_FINE_AT_THE_END: Final = frozenset({FileVerdict.CLEAN, FileVerdict.EMPTY, FileVerdict.TORN})


@dataclass(frozen=True, slots=True)
class FileSurveyTask:
    file: FileTask
    log_id: int | None
    """As CURRENT tells; None when the file's own first mark has to."""


@dataclass(slots=True)
class FileSurvey:
    """What one file shows by itself."""

    scan: FileScan
    first: CommitMark | None
    """The mark it begins with, when that can be read."""
    chain: MarkChain = field(default_factory=MarkChain)
    """As it is behind the file's last whole group."""


MapTasks = Callable[[Sequence[FileSurveyTask]], Sequence[FileSurvey]]
"""Surveys every file, here or elsewhere, and gives the results in the order of the tasks."""


def survey_file(buffer: memoryview, task: FileSurveyTask) -> tuple[FileSurvey, FrameTable | None]:
    """Survey one file, and the frames of its whole groups; None when a frame is not sound.

    The frames are checked all together. Only if one is not sound are they checked one by one,
    so that the verdict is what it always is.
    """
    around = task.file.around
    quick = replace(around, deep=False, skim=False)
    result = _scan(buffer, task, quick)
    spans = result.scan.spans
    groups = list(zip(spans[0::4], spans[1::4], strict=True))
    try:
        return result, read_table(buffer, groups, verify=around.deep)
    except FormatError:
        return _scan(buffer, task, around), None


def _scan(buffer: memoryview, task: FileSurveyTask, around: Surroundings) -> FileSurvey:
    result = FileSurvey(FileScan(task.file.path, task.file.number), _first_mark(buffer))
    result.chain.log_id = task.log_id
    scan_file(buffer, result.scan, result.chain, around)
    return result


def survey_in_parallel(
    disk: Disk, wal_directory: PurePath, map_tasks: MapTasks, *, deep: bool = False
) -> WalReport:
    """The report that `inspect_wal` gives, with the files surveyed by `map_tasks`."""
    begun = [
        begin_survey(disk, directory, deep=deep)
        for directory in find_shard_directories(disk, wal_directory)
    ]
    results = iter(map_tasks([each for survey, tasks in begun for each in _tasks(survey, tasks)]))
    shards = []
    for survey, tasks in begun:
        of_shard = [next(results) for _ in _tasks(survey, tasks)]
        if survey.repairs.skips or not join_surveys(survey, of_shard):
            survey = survey_shard(disk, survey.directory, deep=deep)
        shards.append(survey)
    return report_on(without_bare(shards))


def _tasks(survey: ShardSurvey, tasks: list[FileTask]) -> list[FileSurveyTask]:
    """The files that can be surveyed by themselves: none of a shard with agreed losses."""
    if survey.repairs.skips:
        return []
    return [FileSurveyTask(task, survey.chain.log_id) for task in tasks]


def join_surveys(survey: ShardSurvey, results: Sequence[FileSurvey]) -> bool:
    """Put the results for a shard into its survey. False when they do not join: survey in order."""
    chain = survey.chain
    for number, result in enumerate(results, 1):
        fine = _FINE if number < len(results) else _FINE_AT_THE_END
        if result.scan.verdict not in fine:
            return False
        if not result.scan.groups:
            continue
        if chain.trusted and not _continues(chain, result):
            return False
        chain = replace(result.chain, run=max(chain.run, result.chain.run))
    survey.files = [result.scan for result in results]
    survey.chain = chain
    return True


def _continues(chain: MarkChain, result: FileSurvey) -> bool:
    first = result.first
    return (
        first is not None
        and first.chain == chain.chain
        and first.frame == chain.next_frame
        and first.log_id == chain.log_id
    )


def _first_mark(buffer: memoryview) -> CommitMark | None:
    try:
        return decode_mark(buffer, 0, min(len(buffer), MARK_BYTES))
    except FormatError:
        return None
