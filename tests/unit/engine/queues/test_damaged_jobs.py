"""A job whose record is damaged is put away with its cause, or shown; it is never simply stuck."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headwater
from tests.rig.damage import damage_entries, damage_records
from tests.unit.engine.conftest import Open

JOBS = 25


def queue(opened: Open, **settings: Any) -> headwater.Database:
    db = opened(cache_bytes=0)
    db.create("jobs", type="queue", lease_ms=60_000, **settings)
    db.append("jobs", [{"data": n, "tag": f"k{n % 2}"} for n in range(1, JOBS + 1)])
    db.checkpoint()
    return db


def hurt(db: headwater.Database, *seqs: int) -> None:
    directory = Path(str(db.engine.core.directory))
    damage_records(directory, db.engine.topic("jobs").topic_id, seqs)


def letters(db: headwater.Database) -> list[dict[str, Any]]:
    return [record.meta or {} for record in db.diff("dead").records]


def work_off(db: headwater.Database, wanted: int = 4) -> list[int]:
    """Claim and ack until nothing is left: the seqs, in the order in which they came."""
    done: list[int] = []
    for _ in range(3 * JOBS):
        claimed = db.claim("jobs", "w", wanted)
        if claimed.jobs:
            db.ack("jobs", "w", claimed.seqs)
            done += claimed.seqs
        elif not claimed.ready:
            return done
    raise AssertionError("the queue is never empty")


def without(*seqs: int) -> list[int]:
    return [n for n in range(1, JOBS + 1) if n not in seqs]


def test_a_damaged_job_becomes_a_dead_letter_with_its_cause_and_place(opened: Open) -> None:
    db = queue(opened, dead_letter="dead", max_deliveries=5)
    hurt(db, 3, 12)
    assert work_off(db) == without(3, 12)
    stats = db.queue_stats("jobs")
    assert stats == (0, 0, 0, 2, 0)
    first, second = letters(db)
    assert first["$dead_letter_cause"] == second["$dead_letter_cause"] == "damaged"
    assert (first["$dead_letter_src_seq"], second["$dead_letter_src_seq"]) == (3, 12)
    assert first["$dead_letter_from"] == "jobs"
    assert first["$dead_letter_deliveries"] == 0
    assert "seg-0000000000000001.data" in first["$dead_letter_damage"]
    record = db.diff("dead").records[0]
    assert record.data is None
    assert record.tag == "k1"  # the tag index of this life still knows it


def test_a_dead_letter_of_a_damaged_job_is_not_given_back_as_an_empty_one(opened: Open) -> None:
    db = queue(opened, dead_letter="dead")
    hurt(db, 3)
    work_off(db)
    assert db.requeue("dead", [1]).skipped == [1]


def test_without_a_dead_letter_topic_a_damaged_job_is_shown_and_holds_up_nobody(
    opened: Open,
) -> None:
    db = queue(opened)
    hurt(db, 1, 20)
    assert work_off(db) == without(1, 20)
    assert db.queue_stats("jobs") == (0, 0, 0, 0, 2)
    assert db.claim("jobs", "w").jobs == []
    db.create("jobs", type="queue", dead_letter="dead", max_deliveries=3)
    db.claim("jobs", "w")
    assert db.queue_stats("jobs") == (0, 0, 0, 2, 0)
    assert [each["$dead_letter_src_seq"] for each in letters(db)] == [1, 20]


def test_deleting_a_damaged_job_takes_it_out_of_what_is_shown(opened: Open) -> None:
    db = queue(opened)
    hurt(db, 1)
    work_off(db)
    assert db.queue_stats("jobs").blocked == 1
    db.delete("jobs", before_seq=2)
    assert db.queue_stats("jobs") == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("settings", [{}, {"dead_letter": "dead"}])
def test_a_damaged_job_keeps_no_other_of_its_key_waiting(
    opened: Open, settings: dict[str, Any]
) -> None:
    db = queue(opened, fifo_key="tag", **settings)
    hurt(db, 1, 2, 7)
    assert sorted(work_off(db)) == without(1, 2, 7)
    assert db.queue_stats("jobs").in_flight == 0


def test_a_job_that_is_damaged_while_it_is_given_back_is_put_away_by_the_next_claim(
    opened: Open,
) -> None:
    db = queue(opened, dead_letter="dead", max_deliveries=5)
    claimed = db.claim("jobs", "w", 3)
    db.nack("jobs", "w", claimed.seqs)
    hurt(db, 2)
    db.engine.core.maps.clear()
    assert work_off(db, 1) == without(2)
    (letter,) = letters(db)
    assert letter["$dead_letter_deliveries"] == 1


def test_a_damaged_job_that_was_delivered_too_often_is_not_stuck(opened: Open) -> None:
    db = queue(opened, dead_letter="dead", max_deliveries=1)
    claimed = db.claim("jobs", "w", 1)
    hurt(db, 1)
    db.engine.core.maps.clear()
    db.nack("jobs", "w", claimed.seqs)
    assert work_off(db) == without(1)
    assert db.queue_stats("jobs") == (0, 0, 0, 1, 0)
    assert letters(db)[0]["$dead_letter_cause"] == "damaged"


def test_a_damaged_job_is_counted_once_over_restarts(opened: Open) -> None:
    db = queue(opened, dead_letter="dead")
    directory, number = Path(str(db.engine.core.directory)), db.engine.topic("jobs").topic_id
    db.close()
    damage_records(directory, number, [3, 4])
    damage_entries(directory, number, [4])  # neither the frame nor its entry can be read
    for life in range(3):
        db = opened(cache_bytes=0)
        held = db.claim("jobs", "slow", 1)  # it is alive, so what lies behind it is looked at again
        assert held.seqs == [1]
        assert work_off(db) == ([] if life else without(1, 3, 4))
        assert db.queue_stats("jobs") == (0, 1, 0, 2, 0)
        assert len(letters(db)) == 2
        db.close()


def test_a_waiting_worker_is_given_what_comes_behind_a_damaged_job(opened: Open) -> None:
    db = queue(opened, dead_letter="dead")
    work_off(db)
    db.append("jobs", [{"data": "hurt"}, {"data": "whole"}])
    db.checkpoint()
    hurt(db, JOBS + 1)
    got = [job.record.data for _ in range(2) for job in db.claim("jobs", "w", 1, wait_ms=50).jobs]
    assert got == ["whole"]
