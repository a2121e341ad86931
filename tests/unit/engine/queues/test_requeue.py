"""Dead letters go back to their queues, each once, as they were."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core.errors import NotAQueueError, TopicNotFoundError
from headwater.engine.database import Database
from headwater.testing import ManualClock
from tests.rig.life import SMALL, new_disk, open_stepped


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def db(clock: ManualClock) -> Database:
    return open_stepped(new_disk(), SMALL, clock)


def give_up(db: Database, count: int, **settings: Any) -> None:
    """So many jobs of the queue `jobs` end in `dead`."""
    db.create("jobs", type="queue", max_deliveries=1, dead_letter="dead", **settings)
    records = [
        {"data": {"n": n}, "tag": f"t{n}", "node": "maker", "meta": {"own": n}}
        for n in range(count)
    ]
    db.append("jobs", records)
    db.nack("jobs", "worker", db.claim("jobs", "worker", count).seqs)
    db.claim("jobs", "worker", count)
    assert db.state("dead").count == count
    assert db.state("jobs").count == 0


def test_a_letter_goes_back_as_the_job_it_was(db: Database) -> None:
    give_up(db, 2)
    assert db.requeue("dead", [2]) == ([2], [])
    assert [record.seq for record in db.diff("dead").records] == [1]
    (job,) = db.claim("jobs", "worker", 10).jobs
    assert job.record.data == {"n": 1}
    assert (job.record.tag, job.record.node, job.record.meta) == ("t1", "maker", {"own": 1})
    assert job.deliveries == 1


def test_what_is_no_letter_stays_and_is_told(db: Database) -> None:
    give_up(db, 1)
    db.append("dead", {"data": "written by hand", "meta": {"$dead_letter_from": 7}})
    assert db.requeue("dead", [3, 2, 1, 1]) == ([1], [3, 2])
    assert [record.data for record in db.diff("dead").records] == ["written by hand"]


def test_a_letter_of_a_queue_that_is_gone_stays_with_an_error(db: Database) -> None:
    give_up(db, 1)
    db.drop("jobs")
    with pytest.raises(TopicNotFoundError):
        db.requeue("dead", [1])
    db.create("jobs", type="log")
    with pytest.raises(NotAQueueError):
        db.requeue("dead", [1])
    assert db.state("dead").count == 1


def test_letters_of_a_queue_of_letters_go_back_too(db: Database) -> None:
    db.create("dead", type="queue")
    give_up(db, 3)
    db.claim("dead", "reader", 1)
    assert db.requeue("dead", [1, 2, 3]) == ([1, 2, 3], [])
    assert db.queue_stats("dead").ready == 0
    assert db.queue_stats("jobs").ready == 3


def test_an_ephemeral_topic_of_letters_gives_them_back(db: Database) -> None:
    db.create("dead", durability="ephemeral")
    give_up(db, 2)
    assert db.requeue("dead", [1, 2]) == ([1, 2], [])
    assert db.state("dead").count == 0


def test_a_letter_whose_delete_was_lost_is_not_sent_twice(db: Database, clock: ManualClock) -> None:
    """The queue remembers the letter by its key, as long as its window says."""
    give_up(db, 1)
    letter = db.diff("dead").records[0]
    key = f"requeue of {db._engine.topic('dead').topic_id}: {letter.seq}"
    db.append("jobs", {"data": letter.data}, idempotency_key=key)
    assert db.requeue("dead", [1]) == ([1], [])
    assert db.state("jobs").count == 1
