"""A log surveyed file by file gives the report of a survey in order, whatever is damaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import pytest

from headwater.disk import Disk
from headwater.recovery.topics.parallel_survey import (
    FileSurvey,
    FileSurveyTask,
    join_surveys,
    survey_file,
    survey_in_parallel,
)
from headwater.recovery.topics.report import WalReport, inspect_wal
from headwater.recovery.topics.survey import begin_survey, read_log_file
from headwater.testing import FakeDisk
from tests.crash.damage import SPECIMENS
from tests.crash.matrix import slice_of, tried
from tests.crash.session import WAL
from tests.rig.life import DATA, SMALL, Life, new_disk, with_shards
from tests.rig.scripts import records

pytestmark = pytest.mark.crash


class OneByOne:
    """Looks at the files backwards, to show that their order does not matter."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.surveyed = 0

    def __call__(self, tasks: Sequence[FileSurveyTask]) -> list[FileSurvey]:
        self.surveyed += len(tasks)
        results = [self._survey(task) for task in reversed(tasks)]
        return results[::-1]

    def _survey(self, task: FileSurveyTask) -> FileSurvey:
        return survey_file(read_log_file(self.disk, task.file.path), task)[0]


def told(report: WalReport) -> dict[str, Any]:
    scans = [scan for shard in report.shards for scan in shard.files]
    spans = [(scan.path, scan.resume, scan.witnessed, bytes(scan.spans)) for scan in scans]
    chains = [shard.chain for shard in report.shards]
    return {**report.as_dict(), "spans": spans, "chains": chains}


def check(disk: FakeDisk, wal: PurePath, what: str) -> WalReport:
    found = survey_in_parallel(disk, wal, OneByOne(disk))
    assert told(found) == told(inspect_wal(disk, wal)), what
    deep = survey_in_parallel(disk, wal, OneByOne(disk), deep=True)
    assert told(deep) == told(inspect_wal(disk, wal, deep=True)), what
    return found


def damaged(disk: FakeDisk, path: PurePath) -> Iterator[tuple[str, bytes | None]]:
    content = disk.files()[path]
    for offset in slice_of(range(len(content)), 41):
        flipped = bytes([content[offset] ^ 1 << offset % 8])
        yield f"byte {offset} of {path}", content[:offset] + flipped + content[offset + 1 :]
        yield f"{path} cut to {offset}", content[:offset]
    yield f"{path} zeroed", bytes(len(content))
    yield f"{path} missing", None
    for other in disk.files():
        if other.parent == path.parent and other != path:
            yield f"{path} replaced by {other}", disk.files()[other]


@pytest.mark.parametrize("name", SPECIMENS)
def test_pieces_give_the_report_of_a_look_in_order(name: str) -> None:
    specimen = SPECIMENS[name]()
    check(specimen.disk(), WAL, name)
    refused = 0
    for path in specimen.paths:
        for what, content in damaged(specimen.disk(), path):
            disk = specimen.disk()
            if content is None:
                disk.unlink(path)
                disk.settle()
            else:
                disk.write_file(path, content)
            refused += bool(check(disk, WAL, what).refusals)
            tried("log surveyed in parallel: damage")
    assert refused


@pytest.mark.parametrize("field", ["chain", "frame", "log_id"])
def test_a_file_that_was_exchanged_between_two_looks_does_not_join(field: str) -> None:
    disk = SPECIMENS["stopped_cleanly"]().disk()
    survey, tasks = begin_survey(disk, WAL)
    results = OneByOne(disk)([FileSurveyTask(task, survey.chain.log_id) for task in tasks])
    assert len(results) > 1
    assert join_surveys(replace(survey), results)
    first = results[1].first
    assert first is not None
    results[1].first = first._replace(**{field: getattr(first, field) + 1})
    assert not join_surveys(survey, results)
    assert not survey.files


def test_several_shards_and_an_earlier_layout_join_like_one() -> None:
    life = Life(new_disk(), settings=with_shards(SMALL, 3))
    for shards in (1, 2):
        for number in range(4):
            life.append(f"topic-{number}", records(6, "x", size=120))
        life.close()
        life.reopen(with_shards(SMALL, shards))
    life.append("topic-1", records(2))
    wal = DATA / "wal"
    mapper = OneByOne(life.fake)
    report = survey_in_parallel(life.fake, wal, mapper)
    assert told(report) == told(inspect_wal(life.fake, wal))
    assert mapper.surveyed > len(report.shards) > 1
