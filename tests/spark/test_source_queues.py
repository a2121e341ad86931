"""Jobs of a queue as rows: those that are done never appear, whatever the files know of it."""

from __future__ import annotations

from pathlib import Path

import headwater
from tests.spark.direct_reader import read, read_all, reader_of


def seqs(rows: list[dict[str, object]]) -> list[object]:
    return [row["seq"] for row in rows]


def test_a_job_that_is_done_is_no_row_before_and_after_a_checkpoint(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data") as database:
        database.create("jobs", type="queue")
        database.append("jobs", [{"data": number} for number in range(6)])
        claimed = database.claim("jobs", "w", 3)
        database.ack("jobs", "w", [job.record.seq for job in claimed.jobs])
        assert seqs(read(tmp_path / "data", topic="jobs")) == [4, 5, 6]
        database.checkpoint()
        more = database.claim("jobs", "w", 1)
        database.ack("jobs", "w", [job.record.seq for job in more.jobs])
        assert seqs(read(tmp_path / "data", topic="jobs")) == [5, 6]
    assert seqs(read(tmp_path / "data", topic="jobs")) == [5, 6]


def test_a_job_that_is_done_after_planning_is_no_row_of_a_later_task(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data") as database:
        database.create("jobs", type="queue")
        database.append("jobs", [{"data": number} for number in range(3)])
        reader = reader_of(tmp_path / "data", topic="jobs")
        planned = reader.partitions()
        claimed = database.claim("jobs", "w", 2)
        database.ack("jobs", "w", [job.record.seq for job in claimed.jobs])
        assert seqs(read_all(reader, planned)) == [3]
