"""What verify, doctor and the pipeline's jobs found is kept where a server has been."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headwater.cli.pipeline.job_run import keep_run
from headwater.disk import PosixDisk
from headwater.engine.maintenance.reports import KeptReport, make_reports_directory, read_reports
from headwater.spark.jobs.job import Place, Report
from tests.unit.cli.conftest import Run
from tests.unit.cli.databases import fill, segment_file
from tests.unit.cli.logs import flip


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A data directory that a server has served."""
    fill(tmp_path / "data")
    make_reports_directory(PosixDisk(), tmp_path / "data")
    return tmp_path / "data"


def kept(directory: Path) -> dict[str, KeptReport]:
    found = read_reports(PosixDisk(), directory)
    assert not found.unreadable
    return {report.job: report for report in found.kept}


def test_verify_keeps_what_it_found_and_knows_the_place(run: Run, served: Path) -> None:
    assert run("verify", served).code == 0
    report = kept(served)["verify"]
    assert report.ok
    assert report.report["findings"] == [], "the reports themselves are no unknown name"
    flip(segment_file(served, "data", 1), 60)
    assert run("verify", served).code == 5
    report = kept(served)["verify"]
    assert not report.ok
    assert report.report["findings"]


def test_doctor_keeps_what_it_measured(run: Run, served: Path) -> None:
    run("doctor", served, "--seconds", "0.1")
    assert kept(served)["doctor"].report["checks"]


class Counted(Report, frozen=True, kw_only=True):
    rows: int


class OnPlace(msgspec.Struct):
    place: Place


class OnPath(msgspec.Struct):
    path: str


def test_a_job_keeps_its_report_where_its_data_is(served: Path, tmp_path: Path) -> None:
    keep_run("lake", Counted(ok=True, rows=7), OnPlace(Place(path=str(served))))
    keep_run("verify", Counted(ok=False, rows=1), OnPath(str(served)))
    keep_run("stats", Counted(ok=True, rows=2), OnPlace(Place(url="http://127.0.0.1:1")))
    found = kept(served)
    assert set(found) == {"pipeline-lake", "pipeline-verify"}
    assert found["pipeline-lake"].report == {"ok": True, "rows": 7}
    assert not found["pipeline-verify"].ok
    other = tmp_path / "other"
    other.mkdir()
    keep_run("lake", Counted(ok=True, rows=7), OnPath(str(other)))
    assert not list(other.iterdir())


def test_a_report_that_cannot_be_written_is_no_failure_of_the_job(run: Run, served: Path) -> None:
    (served / "reports" / "verify.json").mkdir()
    assert run("verify", served).code == 0
