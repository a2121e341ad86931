"""Segments whose files are gone: damage with its range, in every kind of topic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import headwater
from tests.rig.life import open_stepped
from tests.unit.engine.maintenance.test_background_loader import SMALL, keep_house
from tests.unit.engine.routers.router_rig import Place


def gaps(db: headwater.Database, name: str) -> tuple[list[int], list[tuple[int, int, str]]]:
    """The seqs that a reader gets, and what it is told of."""
    seqs: list[int] = []
    told: list[tuple[int, int, str]] = []
    cursor = 0
    while True:
        diff = db.diff(name, cursor)
        if diff.tombstone is not None:
            gone = diff.tombstone
            told.append((gone.gap_from, gone.gap_to, gone.reason))
        seqs += [record.seq for record in diff.records]
        cursor = diff.next_from_seq
        if diff.caught_up:
            return seqs, told


@pytest.mark.parametrize("name", ["in", "copies"])
def test_a_segment_without_files_is_damage_also_where_a_router_writes(name: str) -> None:
    place = Place()
    place.db.create("copies")
    place.db.put_router("r", source="in", dest="copies")
    place.write(*range(20))
    place.forward()
    place.db.checkpoint()
    directory = place.db.engine.topic(name).files.directory
    place.db.close()
    for suffix in ("data", "idx"):
        place.disk.unlink(directory / f"seg-{6:016d}.{suffix}")
    place.disk.settle()
    db = open_stepped(place.disk, place.settings, place.clock)
    assert gaps(db, name) == ([*range(1, 6), *range(11, 21)], [(6, 10, "damaged")])
    (finding,) = db.engine.core.damage.findings
    assert (finding.path, finding.seq, finding.end_seq) == (
        directory / f"seg-{6:016d}.data",
        6,
        10,
    )


@pytest.mark.parametrize("gone", ["the index at home", "the copy in the tier"])
def test_a_cold_segment_that_lost_a_file_is_damage_and_the_rest_is_served(
    tmp_path: Path, gone: str
) -> None:
    path, cold = tmp_path / "data", tmp_path / "cold"
    cold.mkdir()
    settings = replace(SMALL, cold_url=str(cold))
    with headwater.open(path, settings=settings) as db:
        db.append("jobs", [{"data": n} for n in range(30)])
        db.checkpoint()
        keep_house(db, 1)
        assert db.engine.topic("jobs").segments[1].is_cold
    where, suffix = (path, "cold") if gone == "the index at home" else (cold, "data")
    missing = where / "topics" / "00000001" / f"seg-{6:016d}.{suffix}"
    missing.unlink()
    with headwater.open(path, settings=settings) as db:
        assert gaps(db, "jobs") == ([*range(1, 6), *range(11, 31)], [(6, 10, "damaged")])
        (finding,) = db.engine.core.damage.findings
        assert finding.path == missing
        assert "missing" in finding.reason
        db.append("jobs", {"data": "after"})
