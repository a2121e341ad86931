"""Inspecting a log beside its writer: only what two inspections agree on counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from headwater.format.log_state import Current
from headwater.recovery.topics import report
from headwater.recovery.topics.report import WalReport, report_on
from headwater.recovery.topics.survey import ShardSurvey
from headwater.recovery.topics.table import CurrentState
from headwater.testing import FakeDisk

WAL = PurePosixPath("/data/wal")


def without(number: int) -> WalReport:
    """A look that found this file in CURRENT and not in the directory."""
    current = Current(number, 16_384, 0, oldest=1, log_id=7)
    state = CurrentState.NAMES_MISSING
    return report_on([ShardSurvey(WAL, current=current, current_state=state)])


def settled(monkeypatch: pytest.MonkeyPatch, looks: Iterator[WalReport]) -> WalReport:
    monkeypatch.setattr(report, "inspect_wal", lambda *_, **__: next(looks))
    return report.inspect_until_stable(FakeDisk(["/data"]), WAL)


def test_a_file_that_is_missing_twice_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = settled(monkeypatch, iter([without(31)] * 2)).refusals
    assert "wal-0000000000000031.log" in finding.what


def test_a_writer_who_rotates_during_every_look_has_lost_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = (without(number) for number in range(31, 1_000, 30))
    assert not settled(monkeypatch, looks).refusals
