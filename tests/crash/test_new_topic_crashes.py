"""A topic added to a stopped directory from outside: there whole, or not at all (I1, I4, I7).

Whatever a crash leaves, an engine starts, has its own topics unchanged, and gives no new topic a
directory that anything was left in.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from headwater.config.topic import TopicSettings
from headwater.core.errors import DirectoryInUseError, TopicExistsIncompatibleError
from headwater.disk import Disk
from headwater.engine.database import Database
from headwater.engine.read_only.directory_check import verify_directory
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import topic_directory_name
from headwater.format.snapshot import META_DIRECTORY
from headwater.spark.jobs.log_directories import owned
from headwater.spark.jobs.straight import SegmentWriter, add, reserve
from headwater.testing import DROPS, PAIRS, PREFIXES, RANDOM, TORN, CrashPlan, FakeDisk, ManualClock
from tests.crash.matrix import slice_of, tried
from tests.rig.life import DATA, SMALL, new_disk, open_stepped

pytestmark = pytest.mark.crash

PLANS = {"prefixes": PREFIXES, "drops": DROPS, "pairs": PAIRS, "torn": TORN, "random": RANDOM}
EVERY = {"prefixes": 1, "drops": 1, "pairs": 2, "torn": 80, "random": 2}
TS = 1_700_000_000_500
PAYLOADS = [f'{{"n":{number}}}'.encode() for number in range(12)]
TAGS = [b"even" if number % 2 == 0 else b"" for number in range(12)]


def reopened(disk: Disk) -> Database:
    return open_stepped(disk, SMALL, ManualClock())


def before() -> FakeDisk:
    """Topics in segments, in the log only, and one that is gone."""
    disk = new_disk()
    db = reopened(disk)
    db.append("old", [{"data": number} for number in range(8)])
    db.append("gone", {"data": 1})
    db.drop("gone")
    db.close()
    db = reopened(disk)
    db.append("late", {"data": "in the log"})  # and the process is killed
    return disk.after_kill()


def fill(disk: Disk, name: str = "filled") -> None:
    with owned(disk, [DATA], writing=True):
        new = reserve(disk, DATA, name)
        writer = SegmentWriter(disk, new.segments, new.topic_id, 1, TS, SMALL.segments)
        for start in (0, 7):
            part = slice(start, 7 if start == 0 else None)
            writer.write([b""] * len(PAYLOADS[part]), TAGS[part], PAYLOADS[part])
        writer.finish()
        add(disk, DATA, new, TopicSettings(), writer.done, TS)


@cache
def filled() -> FakeDisk:
    disk = before()
    fill(disk)
    return disk


def contents(db: Database, topic: str) -> list[tuple[int, Any, str | None]]:
    return [(each.seq, each.data, each.tag) for each in db.diff(topic, limit=1_000).records]


WHOLE = [(number + 1, {"n": number}, "even" if number % 2 == 0 else None) for number in range(12)]


def leftovers(disk: FakeDisk) -> list[str]:
    root = DATA / TOPICS_DIRECTORY
    return disk.list_directory(root) if disk.is_directory(root) else []


def topic_id(db: Database, name: str) -> int:
    topic = db.engine.core.registry.find(name)
    assert topic is not None
    return topic.topic_id


def check(disk: FakeDisk, *, must_be_there: bool = False) -> None:
    left = set(leftovers(disk))
    for _ in range(2):
        db = reopened(disk)
        names = {state.topic for state in db.topics()}
        assert {"old", "late"} <= names <= {"old", "late", "filled", "other"}, disk.label
        assert [data for _, data, _ in contents(db, "old")] == list(range(8)), disk.label
        assert [data for _, data, _ in contents(db, "late")] == ["in the log"], disk.label
        assert not must_be_there or "filled" in names, disk.label
        if "filled" in names:
            state = db.state("filled")
            assert (state.head_seq, state.count) == (12, 12), disk.label
            assert contents(db, "filled")[:12] == WHOLE, disk.label
            assert db.state("filled").bytes == state.bytes, "the same before and after loading"
        if "other" not in names:
            db.append("other", {"data": "new"})
            assert topic_directory_name(topic_id(db, "other")) not in left, disk.label
        assert [data for _, data, _ in contents(db, "other")] == ["new"], disk.label
        db.close()


def different(disk: FakeDisk, plan: CrashPlan) -> Iterator[FakeDisk]:
    seen: set[int] = set()
    for state in disk.crash_states(plan=plan):
        key = hash(tuple(state.files().items()))
        if key not in seen:
            seen.add(key)
            yield state


@pytest.mark.parametrize("plan", PLANS)
def test_a_new_topic_is_whole_or_absent_after_any_crash(plan: str) -> None:
    for state in slice_of(different(filled(), PLANS[plan]), EVERY[plan]):
        check(state)
        tried(f"power loss while a topic is added from outside: {plan}")


def test_a_topic_that_was_added_survives_a_power_loss() -> None:
    check(filled().after_power_loss(), must_be_there=True)


def test_the_topic_outlives_an_unreadable_snapshot() -> None:
    disk = filled().after_power_loss()
    newest = max(path for path in disk.files() if path.parent.name == META_DIRECTORY)
    disk.damage(newest, 40, b"damage")
    check(disk, must_be_there=True)


def test_a_second_try_after_a_crash_ends_with_the_topic() -> None:
    for state in slice_of(different(filled(), PREFIXES), 6):
        db = reopened(state)
        there = any(each.topic == "filled" for each in db.topics())
        db.close()
        if not there:
            fill(state)
        check(state, must_be_there=True)


def test_records_are_written_behind_those_that_were_added() -> None:
    disk = filled().after_kill()
    db = reopened(disk)
    assert db.append("filled", {"data": "next"}).first_seq == 13
    db.close()
    db = reopened(disk)
    assert [seq for seq, _, _ in contents(db, "filled")] == list(range(1, 14))
    db.close()
    assert faults(disk) == []


def faults(disk: FakeDisk) -> list[str]:
    report = verify_directory(disk, DATA, ManualClock(), lambda _: lambda _: None)
    return [f"{each.path}: {each.what}" for each in report.faults]


def test_what_was_added_is_sound_before_any_engine_has_seen_it() -> None:
    disk = filled().after_kill()
    assert faults(disk) == []


def test_a_name_that_is_or_was_a_topic_is_refused_and_nothing_is_changed() -> None:
    disk = before()
    files = disk.files()
    for name in ("old", "late", "gone"):
        with pytest.raises(TopicExistsIncompatibleError, match=name):
            fill(disk, name)
    after = {path: data for path, data in disk.files().items() if path.name != "LOCK"}
    assert after == {path: data for path, data in files.items() if path.name != "LOCK"}


def test_a_directory_in_use_is_refused() -> None:
    disk = before()
    db = reopened(disk)
    with pytest.raises(DirectoryInUseError):
        fill(disk)
    db.close()
