"""Each bug that was found in the engine, as the shortest way to meet it again."""

from __future__ import annotations

import errno
import re
from dataclasses import replace

import pytest

from headwater.core.errors import HeadConflictError, HeadwaterError
from headwater.engine.engine import Engine
from headwater.engine.topics.loader import load_once
from headwater.engine.topics.record_encoding import encode_records
from headwater.model.match import parse_match
from headwater.testing import KILL, POWER_LOSS, TORN, Fault, FaultDisk, Verb
from tests.rig.comparison import read_events
from tests.rig.life import SMALL, Life, check_again, new_disk, with_shards
from tests.rig.scripts import SCRIPTS, records

pytestmark = pytest.mark.crash


def killed(life: Life) -> Life:
    state = next(life.fake.crash_states(life.fake.point, KILL))
    reborn = life.reborn(state, [life.world.copy()])
    check_again(reborn, state)
    return reborn


def power_lost(life: Life) -> Life:
    state = next(life.fake.crash_states(life.fake.point, POWER_LOSS))
    return life.reborn(state, [life.world.copy()])


def test_fsync_records_are_served_from_segments_too() -> None:
    life = Life(new_disk())
    for _ in range(5):
        life.append("a", records(5, size=90))
    life.checkpoint()
    assert life.db.engine.topic("a").tail.first_seq != 1
    life.check()
    assert not life.db.engine.core.damage.findings


def test_an_answer_on_its_way_to_the_owner_is_not_covered_by_a_checkpoint() -> None:
    """The log has answered, the owner has not heard of it, and the keeper takes its cut."""
    life = Life(new_disk())
    life.create("a")
    engine = life.db.engine
    late: list[object] = []
    take_effect = Engine._take_effect
    engine._take_effect = late.append  # type: ignore[method-assign,assignment]
    with life.owner.holding():
        write = engine.append("a", encode_records(records(1)))
    for shard in engine.core.shards:
        shard.advance()
    life.checkpoint()
    for tickets in late:
        take_effect(engine, tickets)  # type: ignore[arg-type]
    assert write.done
    life.world.append("a", records(1), life.clock.wall_ms())
    killed(life)


def test_a_key_is_remembered_after_a_crash() -> None:
    life = Life(new_disk())
    life.append("a", records(2), key="k")
    reborn = power_lost(life)
    reborn.append("a", records(2), key="k")
    assert reborn.world.topics["a"].visible_seq == 2


def test_a_snapshot_after_a_crash_tells_what_was_checkpointed_before_it() -> None:
    life = Life(new_disk())
    life.append("a", records(3))
    life.append("b", records(1))
    life.checkpoint()
    life.append("a", records(12, size=90))
    life.absorb()
    reborn = killed(life)
    reborn.append("b", records(1))
    reborn.checkpoint()
    reborn.append("b", records(1))
    reborn.checkpoint()
    killed(reborn).check()


def test_what_a_snapshot_says_of_a_log_is_not_believed_of_the_next_one_in_its_place() -> None:
    life = Life(new_disk())
    life.append("a", records(12))
    for shards in (2, 1):
        life.close()
        life.reopen(with_shards(SMALL, shards))
        for _ in range(2 if shards == 2 else 0):
            life.append("a", records(1))
            life.checkpoint()
    life.append("a", records(1))
    power_lost(life).check()


def test_a_delete_does_not_bring_back_what_a_cap_took() -> None:
    life = Life(new_disk())
    life.create("a", cap_records=3)
    life.append("a", records(3))
    life.append("a", records(2, "x"))
    life.delete("a", match="x")
    killed(life).check()


def test_a_refused_first_write_leaves_no_topic_behind() -> None:
    life = Life(new_disk())
    with pytest.raises(HeadConflictError):
        life.db.append("a", records(1), expect_head_seq=7)
    assert life.db.topics() == []


def test_a_topic_nobody_has_loaded_shows_its_floors() -> None:
    life = Life(new_disk())
    life.create("a", cap_records=2)
    life.append("a", records(5))
    life.close()
    life.reopen()
    life.close()
    life._open()
    assert life.db.state("a").evict_floor == 4


def test_a_topic_is_loaded_once_whoever_asks_how_often() -> None:
    life = Life(new_disk())
    life.append("a", records(3))
    life.close()
    life._open()
    core = life.db.engine.core
    topic = life.db.engine.topic("a")
    life.append("a", records(4))
    life.checkpoint()
    load_once(core, topic)  # somebody who waited while another one loaded it
    life.check()
    killed(life).check()


def test_an_active_segment_that_was_sealed_and_dropped_is_not_missed() -> None:
    life = Life(new_disk())
    life.append("a", records(3))
    life.checkpoint()
    life.delete("a", before_seq=100)
    life.append("b", records(9, size=90))
    life.absorb()
    life.tick(4_000_000_000)
    life.round()
    life.reclaim()
    killed(life).check()


def test_records_evicted_before_they_reached_a_segment_leave_a_log_that_opens() -> None:
    life = Life(new_disk())
    life.append("a", records(3))
    life.checkpoint()
    life.create("a", cap_records=1)
    life.append("a", records(4))
    life.append("a", records(3))
    life.create("a", cap_bytes=1)
    life.checkpoint()
    killed(life).check()


def test_a_checkpoint_whose_mark_was_refused_leaves_nothing_that_counts() -> None:
    fake = new_disk()
    disk = FaultDisk(fake)
    life = Life(fake, disk)
    life.append("a", records(3))
    life.checkpoint()
    life.append("a", records(9))
    full = disk.add(Fault(Verb.WRITE, errno.ENOSPC, path="*/wal/*", always=True))
    with pytest.raises(HeadwaterError):
        life.db.checkpoint()
    full.enabled = False
    life.tick(2_000_000)
    life.create("a", cap_records=4)
    life.checkpoint()
    life.check()
    killed(life).check()


def test_seqs_lost_in_one_crash_are_still_told_of_after_the_next() -> None:
    life = Life(new_disk())
    life.create("a", durability="disk")
    for _ in range(3):
        life.append("a", records(1))
    second = power_lost(life)
    second.append("a", records(1))
    killed(second).check()


def test_opening_twice_after_a_clean_stop_moves_no_head() -> None:
    life = Life(new_disk())
    life.create("a", durability="disk")
    life.append("a", records(3))
    life.close()
    state = next(life.fake.crash_states(life.fake.point, POWER_LOSS))
    for shards in (3, 3, 1):
        reborn = life.reborn(state, [life.world.copy()], with_shards(SMALL, shards))
        assert reborn.db.state("a").head_seq == 3
        reborn.abandon()


def test_the_snapshot_before_the_newest_is_kept_when_one_between_them_failed() -> None:
    fake = new_disk()
    disk = FaultDisk(fake)
    life = Life(fake, disk)
    life.append("a", records(1))
    life.checkpoint()
    life.append("a", records(1))
    disk.add(Fault(Verb.CREATE, errno.EIO, path="snapshot-*"))
    with pytest.raises((HeadwaterError, OSError)):
        life.db.checkpoint()
    life.append("a", records(1))
    life.checkpoint()
    assert len([path for path in fake.files() if path.name.startswith("snapshot-")]) == 2


def test_the_files_of_a_dropped_topic_go_though_a_snapshot_came_between() -> None:
    life = Life(new_disk())
    life.append("a", records(3))
    life.checkpoint()
    life.drop("a")
    life.checkpoint()
    reborn = killed(life)
    reborn.round()
    assert not [path for path in reborn.fake.files() if "topics" in path.parts]


def test_a_delete_replayed_late_spares_the_record_that_came_after_it() -> None:
    """A write fails behind which a delete was queued, and its seq is used again. The log still
    has the delete when the record is in a segment already."""
    fake = new_disk()
    disk = FaultDisk(fake)
    life = Life(fake, disk)
    life.append("a", records(2, "x"))
    engine = life.db.engine
    disk.add(Fault(Verb.WRITE, errno.ENOSPC, path="*/wal/*"))
    matcher = parse_match("x")
    with life.owner.holding():
        write = engine.append("a", encode_records(records(1, "x")))
        change = engine.topics.delete(engine.topic("a"), None, matcher)
    assert write.error is not None
    assert change.error is None
    life.world.delete("a", None, matcher)
    life.tick(2_000_000)
    life.append("a", records(1, "x", size=400))
    assert life.world.topics["a"].visible_seq == 3
    life.absorb()
    assert engine.topic("a").checkpointed_seq == 3
    killed(life).check()


def test_no_answer_overtakes_that_of_an_earlier_write_to_the_same_topic() -> None:
    """The first two writes wait for a sync, since either may be the one that makes the topic. The
    third comes after the first was answered, and shares a group with the second."""
    settings = replace(SMALL, wal=replace(SMALL.wal, group_frames_max=3))
    life = Life(new_disk(), settings=settings)
    engine = life.db.engine
    with life.owner.holding():
        first, second = (
            engine.append("a", encode_records(records(1)), settings={"durability": "memory"})
            for _ in range(2)
        )
        life.wal.step()
        assert first.done
        assert not second.done
        third = engine.append("a", encode_records(records(1)))
    assert [each.answer().first_seq for each in (first, second, third)] == [1, 2, 3]
    assert [record.seq for record in life.db.diff("a").records] == [1, 2, 3]


def test_no_seq_the_disk_class_acked_is_given_out_again_after_a_power_loss() -> None:
    settings = replace(SMALL, wal=replace(SMALL.wal, group_frames_max=1))
    life = Life(new_disk(), settings=settings)
    life.create("a", durability="disk")
    for _ in range(30):
        life.append("a", records(1))
        power_lost(life).abandon()


def test_what_was_logged_survives_a_change_to_ephemeral_and_back() -> None:
    life = Life(new_disk())
    life.append("a", records(3))
    life.create("a", durability="ephemeral")
    life.append("a", records(2))
    life.checkpoint()
    life.check()
    second = power_lost(life)
    assert second.db.state("a").count == 3
    second.create("a", durability="fsync")
    second.append("a", records(1))
    second.checkpoint()
    power_lost(second).check()


def test_a_delete_by_tag_after_a_restart_and_a_checkpoint_finds_every_record() -> None:
    life = Life(new_disk())
    life.append("a", records(4, "x"))
    life.close()
    life.reopen()
    life.append("a", records(4, "x"))
    life.checkpoint()
    life.delete("a", match="x")
    life.check()


def test_a_failed_write_does_not_count_against_the_cap() -> None:
    fake = new_disk()
    disk = FaultDisk(fake)
    life = Life(fake, disk)
    life.create("a", cap_bytes=100, discard="reject")
    fault = disk.add(Fault(Verb.WRITE, errno.ENOSPC, path="*/wal/*", always=True))
    with pytest.raises(HeadwaterError):
        life.db.append("a", {"data": "." * 60})
    fault.enabled = False
    life.tick(2_000_000)
    life.append("a", [{"data": "." * 60}])


def test_an_ephemeral_write_sent_twice_is_made_once() -> None:
    life = Life(new_disk())
    life.create("a", durability="ephemeral")
    life.append("a", records(1), key="k")
    life.append("a", records(1), key="k")
    assert life.db.state("a").count == 1


def test_a_missing_segment_is_a_loss_that_readers_are_told_of() -> None:
    life = Life(new_disk())
    life.append("a", records(12))
    life.close()
    for path in list(life.fake.files()):
        if path.name.startswith("seg-0000000000000006"):
            life.fake.unlink(path)
    life._open()
    events = list(read_events(life.db, "a"))
    assert ("tombstone", 6, 10) in events
    assert [event[0] for event in events if event[0] != "tombstone"] == [1, 2, 3, 4, 5, 11, 12]
    assert life.db.engine.core.damage.findings


def test_a_delete_whose_flag_was_torn_is_done_again() -> None:
    """The byte that says deleted became another one: the frame is sound, and its tag is known."""
    life = SCRIPTS["rewriting"].recorded()
    torn_flags = [
        state
        for state in life.states(plan=TORN)
        if re.search(r": torn #\d+ write seg-\d+\.data\[(\d+):\d+\] after 0 bytes", state.label)
    ]
    assert torn_flags
    for state in torn_flags:
        check_again(life.reborn(state, life.worlds_at(state.crash_point)), state)
