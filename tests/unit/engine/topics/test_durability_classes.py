"""What each class promises, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.core.errors import TopicFullError
from headwater.format.frame import FrameType
from tests.unit.engine.conftest import Open
from tests.unit.engine.engine_files import frames_in_log, killed


@pytest.mark.claims(194)
def test_ephemeral_records_are_read_while_running_and_gone_after_a_restart(opened: Open) -> None:
    db = opened()
    db.create("mood", durability="ephemeral")
    db.append("mood", [{"data": n} for n in range(3)])
    assert [record.data for record in db.diff("mood").records] == [0, 1, 2]
    assert not [f for f in frames_in_log(db) if f.type is FrameType.APPEND]
    db.close()
    found = opened().diff("mood")
    assert found.records == []
    assert found.tombstone is not None
    assert (found.tombstone.gap_from, found.tombstone.gap_to) == (1, 3)


@pytest.mark.claims(195)
def test_an_ephemeral_topic_keeps_its_settings_and_reuses_no_seq_after_a_checkpoint(
    opened: Open,
) -> None:
    db = opened()
    db.create("mood", durability="ephemeral", cap_records=7)
    db.append("mood", [{"data": n} for n in range(3)])
    db.checkpoint()
    db.close()
    db = opened()
    assert db.state("mood").config["cap_records"] == 7
    assert db.append("mood", {"data": "new"}).first_seq == 4


@pytest.mark.claims(197, 204)
def test_a_memory_topic_takes_the_log_like_disk_and_keeps_its_settings(
    opened: Open, tmp_path: Path
) -> None:
    db = opened()
    db.create("hint", durability="memory", ttl_ms=1_000_000)
    db.append("hint", {"data": 1})
    assert [f.seq for f in frames_in_log(db) if f.type is FrameType.APPEND] == [1]
    db = opened(killed(db, tmp_path / "killed"))
    assert db.state("hint").config["ttl_ms"] == 1_000_000
    assert [record.data for record in db.diff("hint").records] == [1]


@pytest.mark.claims(198)
def test_a_memory_topic_writes_no_seq_ceiling(opened: Open) -> None:
    db = opened()
    db.create("hint", durability="memory")
    db.append("hint", {"data": 1})
    assert not [f for f in frames_in_log(db) if f.type is FrameType.HEAD_WATERMARK]


@pytest.mark.claims(199)
def test_a_disk_topic_survives_a_killed_process_and_hands_out_no_seq_again(
    opened: Open, tmp_path: Path
) -> None:
    db = opened()
    db.create("clicks", durability="disk")
    db.append("clicks", [{"data": n} for n in range(5)])
    db = opened(killed(db, tmp_path / "killed"))
    found = db.diff("clicks", limit=5)
    assert [record.data for record in found.records] == [0, 1, 2, 3, 4]
    # Seqs up to the durable ceiling may have been acked: the head goes on above them.
    assert db.append("clicks", {"data": "later"}).first_seq > 256
    rest = db.diff("clicks", 5)
    assert rest.tombstone is not None
    assert rest.tombstone.reason == "lost_tail"
    assert [record.data for record in rest.records] == ["later"]


@pytest.mark.claims(160, 161)
def test_a_full_topic_refuses_before_a_seq_is_taken_and_a_batch_takes_its_seqs_at_once(
    opened: Open,
) -> None:
    db = opened()
    db.create("jobs", cap_records=4, discard="reject")
    assert list(db.append("jobs", [{"data": n} for n in range(3)]).seqs) == [1, 2, 3]
    with pytest.raises(TopicFullError):
        db.append("jobs", [{"data": n} for n in range(2)])
    assert db.state("jobs").next_seq == 4
    assert db.append("jobs", {"data": "fits"}).first_seq == 4


@pytest.mark.claims(162)
def test_the_answer_to_a_write_names_its_seqs_and_the_head(opened: Open) -> None:
    done = opened().append("a", [{"data": 1}, {"data": 2}])
    assert (list(done.seqs), done.head_seq, done.created, done.deduped) == ([1, 2], 2, True, False)
