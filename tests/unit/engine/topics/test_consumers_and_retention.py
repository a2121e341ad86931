"""Consumers of topics hold nothing: what retention took before they came is told, never silence."""

from __future__ import annotations

import pytest

from tests.unit.engine.queues.queue_rig import Place


@pytest.mark.parametrize("crashes", [False, True])
def test_jobs_that_a_cap_took_before_anybody_claimed_them_are_told_with_their_range(
    crashes: bool,
) -> None:
    place = Place(cap_records=3)
    place.write(8)
    if crashes:
        place.crash()
    assert place.db.claim("jobs", "one", 8).seqs == [6, 7, 8]
    tombstone = place.db.diff("jobs").tombstone
    assert tombstone is not None
    assert (tombstone.reason, tombstone.gap_from, tombstone.gap_to) == ("cap", 1, 5)
    assert place.db.engine.core.counters.records_evicted == 5


def test_a_router_into_a_queue_passes_on_what_its_source_lost_as_a_tombstone() -> None:
    place = Place()
    place.db.create("source", cap_records=2)
    place.db.put_router("feeds", source="source", dest="jobs")
    place.db.append("source", [{"data": n} for n in range(6)])
    place.db.engine.copy_rounds.run_dry()
    tombstone = place.db.diff("jobs").tombstone
    assert tombstone is not None
    assert tombstone.reason == "source_trim"
    assert [record.data for record in place.db.diff("jobs").records] == [4, 5]
    assert place.db.state("source").count == 2, "a slow router stops no retention"
