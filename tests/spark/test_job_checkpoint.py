"""The checkpoint job against the engine's own: the same log, the same bytes."""

from __future__ import annotations

from pathlib import PurePath, PurePosixPath

import msgspec
import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from headwater.config.engine import EngineSettings
from headwater.core.errors import DamageError, DirectoryInUseError, RequestError
from headwater.core.results import TopicState
from headwater.engine.database import Database
from headwater.format.mark import mark_prefix
from headwater.format.names import wal_file_name
from headwater.format.segment import parse_segment_file, parse_topic_directory_name
from headwater.format.snapshot import snapshot_name
from headwater.recovery.topics.plan import apply_repairs, plan_repairs
from headwater.testing import DROPS, PREFIXES, TORN, FakeDisk, ManualClock
from tests.crash.matrix import FULL, slice_of, tried
from tests.rig.comparison import read_events
from tests.rig.life import COLD, DATA, SMALL, open_stepped
from tests.spark.workloads import (
    ALL_IN_THE_LOG,
    IN_ONE_LIFE,
    IN_SEVERAL_LIVES,
    ONE_LIFE,
    OUTPUT,
    SEVERAL_LIVES,
    WITHOUT_COLD,
    Engine,
    Operation,
    absorbed_by_engine,
    checkpoint_here,
    tear,
    topic_files,
)

ARCHIVE = PurePosixPath("/archive")
garbage = st.sampled_from([b"", b"\x01", b"torn in the middle of a group " * 3])


def needed(db: Database, files: dict[PurePath, bytes]) -> dict[PurePath, bytes]:
    """Without segments below the floors, which the engine drops at its next look."""
    contents = {}
    for path, content in files.items():
        topic_id = parse_topic_directory_name(path.parent.name)
        topic = None if topic_id is None else db.engine.core.registry.by_id(topic_id)
        parsed = parse_segment_file(path.name)
        assert parsed is not None, path
        if topic is None:
            continue
        if not topic.loaded:
            earliest = topic.stored.first_needed
            db.diff(topic.name, 0, limit=1)
        else:
            earliest = topic.log.earliest_seq
        if any(
            segment.first_seq == parsed[0] and not (segment.sealed and segment.end_seq < earliest)
            for segment in topic.segments
        ):
            contents[path] = content
    return contents


def check_same(disk: FakeDisk, engine: Engine) -> None:
    """The engine opens a copy and absorbs everything; the job reads the original."""
    twin = disk.clone()
    db, files = absorbed_by_engine(twin, engine.settings, engine.clock)
    before = {path: content for path, content in disk.files().items() if path.name != "LOCK"}
    report = checkpoint_here(disk, engine.clock, cold=engine.settings.cold_url)
    assert topic_files(disk, OUTPUT) == needed(db, files)
    after = disk.files()
    assert {path: after[path] for path in before} == before, "the source was changed"
    db.close()
    check_opens(disk, engine, open_stepped(twin, engine.settings, engine.clock))
    again = checkpoint_here(disk, engine.clock, cold=engine.settings.cold_url)
    assert again.segments_found == again.segments == report.segments


def numbers(state: TopicState) -> TopicState:
    """Without the times, which an engine forgets when nothing is left of a topic."""
    return msgspec.structs.replace(state, last_write_ts=None, last_read_ts=None)


def moved_output(disk: FakeDisk) -> FakeDisk:
    """The output in the place of the source."""
    moved = FakeDisk(["/", COLD])
    for path, content in disk.files().items():
        if OUTPUT in path.parents:
            moved.write_file(DATA / path.relative_to(OUTPUT), content)
        elif COLD in path.parents:
            moved.write_file(path, content)
    return moved


def check_opens(disk: FakeDisk, engine: Engine, db: Database) -> None:
    """The output is a data directory, and a reader of it sees what a reader of the source sees."""
    reopened = open_stepped(moved_output(disk), engine.settings, engine.clock)
    assert [state.topic for state in reopened.topics()] == [state.topic for state in db.topics()]
    for state in db.topics():
        assert numbers(reopened.state(state.topic)) == numbers(state)
        if state.type == "queue":
            assert reopened.queue_stats(state.topic) == db.queue_stats(state.topic)
        assert list(read_events(reopened, state.topic)) == list(read_events(db, state.topic))
        assert numbers(reopened.state(state.topic)) == numbers(db.state(state.topic))


def check_life(base: EngineSettings, operations: list[Operation], shards: int, torn: bytes) -> None:
    engine = Engine(base, shards)
    engine.do(operations)
    engine.stop()
    tear(engine.disk, DATA / "wal", torn)
    check_same(engine.disk, engine)


def check_copies(operations: list[Operation], shards: int, torn: bytes) -> None:
    engine = Engine(SMALL, shards)
    engine.do(operations, ARCHIVE)
    engine.copy_log(ARCHIVE / "last")
    engine.stop()
    disk = engine.disk
    tear(disk, ARCHIVE / "last", torn)
    checkpoint_here(disk, engine.clock, ARCHIVE)
    check_opens(disk, engine, open_stepped(disk, engine.settings, engine.clock))


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("name", ONE_LIFE)
def test_each_thing_a_log_can_say_gives_the_bytes_the_engine_writes(name: str, shards: int) -> None:
    check_life(WITHOUT_COLD, ONE_LIFE[name], shards, b"torn")


@pytest.mark.parametrize("name", SEVERAL_LIVES)
def test_each_life_with_segments_gives_the_bytes_the_engine_writes(name: str) -> None:
    check_life(SMALL, SEVERAL_LIVES[name], 1, b"torn")


@pytest.mark.parametrize("name", [name for name in SEVERAL_LIVES if "ephemeral" not in name])
def test_each_life_can_be_told_from_copies_of_its_log(name: str) -> None:
    check_copies(SEVERAL_LIVES[name], 1, b"torn")


# A failing example is as good as a shorter one that takes five minutes to find.
random_lives = settings(
    max_examples=1_000 if FULL else 25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@random_lives
@given(IN_ONE_LIFE, st.sampled_from([1, 2, 3]), garbage)
def test_a_log_gives_the_bytes_the_engine_writes(
    operations: list[Operation], shards: int, torn: bytes
) -> None:
    note(f"{operations=} {shards=} {torn=}")
    check_life(WITHOUT_COLD, operations, shards, torn)


@random_lives
@given(IN_SEVERAL_LIVES, st.sampled_from([1, 2, 3]), garbage)
def test_a_directory_with_segments_gives_the_bytes_the_engine_writes(
    operations: list[Operation], shards: int, torn: bytes
) -> None:
    note(f"{operations=} {shards=} {torn=}")
    check_life(SMALL, operations, shards, torn)


@random_lives
@given(ALL_IN_THE_LOG, st.sampled_from([1, 2, 3]), garbage)
def test_copies_of_a_log_taken_over_time_give_what_its_readers_see(
    operations: list[Operation], shards: int, torn: bytes
) -> None:
    note(f"{operations=} {shards=} {torn=}")
    check_copies(operations, shards, torn)


# -- counting, choosing, refusing


def written_log(*operations: Operation, shards: int = 1) -> Engine:
    engine = Engine(WITHOUT_COLD, shards)
    engine.do(list(operations) or SOME)
    engine.stop()
    return engine


SOME: list[Operation] = [
    ("append", "one", 9, "a", 30),
    ("append", "two", 6, "b", 300),
    ("match", "one", "a"),
    ("append", "one", 5, "b", 4),
    ("append", "three", 1, None, 4),
]


def test_the_report_tells_what_became_of_every_record() -> None:
    engine = written_log(
        *SOME,
        ("create", "two", {"cap_records": 2}),
        ("below", "three", 2),
        ("append", "two", 1, None, 4),
    )
    tear(engine.disk, DATA / "wal", b"half a group")
    report = checkpoint_here(engine.disk, engine.clock)
    assert report.ok
    assert (report.files, report.topics) == (3, 3)
    assert report.records == 9 + 6 + 5 + 1 + 1
    assert report.left_out == 9 + 5 + 1  # deleted or evicted, all below the first live one
    assert report.written == 5 + 2
    assert (report.absorbed, report.duplicates, report.dead) == (0, 0, 0)
    assert [tail.offset > 0 for tail in report.cut_tails] == [True]
    assert report.log_bytes > report.data_bytes > 0


def test_overlapping_copies_are_counted_once() -> None:
    engine = written_log()
    for name in ("monday", "tuesday"):
        engine.copy_log(ARCHIVE / name)
    report = checkpoint_here(engine.disk, engine.clock, ARCHIVE)
    alone = checkpoint_here(engine.disk, engine.clock, output=PurePosixPath("/alone"))
    assert report.records == alone.records == 21
    assert topic_files(engine.disk, OUTPUT) == topic_files(engine.disk, PurePosixPath("/alone"))


def test_only_the_topics_that_were_named_are_written() -> None:
    engine = written_log()
    report = checkpoint_here(engine.disk, engine.clock, topics=("two",))
    assert (report.topics, report.written) == (1, 6)
    with pytest.raises(RequestError, match="no topic 'five'"):
        checkpoint_here(engine.disk, engine.clock, topics=("five",))


def test_a_directory_in_use_is_refused() -> None:
    engine = Engine(WITHOUT_COLD)
    engine.do(SOME)
    with pytest.raises(DirectoryInUseError):
        checkpoint_here(engine.disk, engine.clock)
    with pytest.raises(DirectoryInUseError):
        checkpoint_here(engine.disk, engine.clock, DATA / "wal")
    assert not topic_files(engine.disk, OUTPUT)


def test_damage_to_the_log_is_refused_with_file_and_offset() -> None:
    engine = written_log(("append", "one", 1, None, 4), *SOME)
    first = DATA / "wal" / wal_file_name(1)
    second = engine.disk.files()[first].index(mark_prefix(), 1)
    engine.disk.damage(first, second + 200, b"\xff")
    with pytest.raises(DamageError) as caught:
        checkpoint_here(engine.disk, engine.clock)
    assert (caught.value.path, caught.value.offset) == (first, second)
    assert not topic_files(engine.disk, OUTPUT)


def test_damage_to_a_segment_is_not_taken_over() -> None:
    engine = Engine(WITHOUT_COLD)
    engine.do([*SOME, ("checkpoint",), ("append", "two", 1, None, 4)])
    engine.stop()
    path = next(p for p in engine.disk.files() if p.name.endswith(".data"))
    engine.disk.damage(path, 60, b"\xff")
    with pytest.raises(DamageError) as caught:
        checkpoint_here(engine.disk, engine.clock)
    assert caught.value.path == path
    assert not engine.disk.exists(OUTPUT / "meta")


def test_an_output_that_holds_something_else_is_refused() -> None:
    engine = written_log()
    checkpoint_here(engine.disk, engine.clock)
    other = written_log(("append", "one", 2, None, 4))
    for path, content in engine.disk.files().items():
        if OUTPUT in path.parents:
            other.disk.write_file(path, content)
    with pytest.raises(RequestError, match="not made from this log"):
        checkpoint_here(other.disk, other.clock)
    engine.disk.write_file(OUTPUT / "notes.txt", b"mine")
    with pytest.raises(RequestError, match=r"holds notes\.txt"):
        checkpoint_here(engine.disk, engine.clock)
    with pytest.raises(RequestError, match="inside the source"):
        checkpoint_here(engine.disk, engine.clock, output=DATA / "out")
    with pytest.raises(RequestError, match="no directory /nowhere"):
        checkpoint_here(engine.disk, engine.clock, output=PurePosixPath("/nowhere/out"))


@pytest.mark.parametrize("suffix", ["data", "idx"])
def test_a_segment_that_was_damaged_since_is_written_again(suffix: str) -> None:
    engine = written_log()
    first = checkpoint_here(engine.disk, engine.clock)
    whole = topic_files(engine.disk, OUTPUT)
    path = next(path for path in whole if path.suffix == f".{suffix}")
    engine.disk.damage(OUTPUT / "topics" / path, 30, b"\xff")
    again = checkpoint_here(engine.disk, engine.clock)
    assert again.segments_found == first.segments - 1
    assert topic_files(engine.disk, OUTPUT) == whole


def test_routers_at_work_are_refused_and_those_at_rest_come_along() -> None:
    engine = Engine(WITHOUT_COLD)
    engine.do([("append", "one", 3, None, 4)])
    engine.db.put_router("copies", source="one", dest="two")
    engine.do([("append", "one", 3, None, 4)])
    engine.db.engine.copy_rounds.route_all()
    engine.db.engine.copy_rounds.run_dry()
    with pytest.raises(RequestError, match="there are routers"):
        checkpoint_here(engine.disk.clone(), engine.clock)
    engine.restart(1)
    engine.stop()
    checkpoint_here(engine.disk, engine.clock)
    reopened = open_stepped(moved_output(engine.disk), engine.settings, engine.clock)
    assert [(state.router, state.source_seq) for state in reopened.routers()] == [("copies", 6)]
    assert reopened.state("two").count == 3
    reopened.engine.copy_rounds.route_all()
    reopened.engine.copy_rounds.run_dry()
    assert reopened.state("two").count == 3, "nothing is copied twice"


def test_a_log_without_its_beginning_or_middle_is_refused() -> None:
    engine = written_log(*SOME * 4)
    engine.copy_log(ARCHIVE / "all")
    numbers = sorted(
        p for p in engine.disk.files() if p.parent == ARCHIVE / "all" and "log" in p.name
    )
    assert len(numbers) > 3
    for gone, says in ((0, "begins at frame"), (1, "frames .* are in no file")):
        parts = FakeDisk(["/"])
        for position, path in enumerate(numbers):
            if position != gone:
                # Each file in a place of its own, so that no log knows what should follow.
                parts.write_file(ARCHIVE / str(position) / path.name, engine.disk.files()[path])
        with pytest.raises(DamageError, match=says):
            checkpoint_here(parts, engine.clock, ARCHIVE)


def test_logs_of_two_databases_are_not_mixed() -> None:
    engine, other = written_log(), written_log(("append", "one", 2, None, 4))
    engine.copy_log(ARCHIVE / "a")
    for path, content in other.disk.files().items():
        if DATA / "wal" in path.parents:
            engine.disk.write_file(ARCHIVE / "b" / path.name, content)
    with pytest.raises(RequestError, match="different databases"):
        checkpoint_here(engine.disk, engine.clock, ARCHIVE)


def test_a_place_without_log_files_is_refused() -> None:
    disk = FakeDisk(["/", "/empty"])
    clock = ManualClock()
    with pytest.raises(RequestError, match="holds no log files"):
        checkpoint_here(disk, clock, PurePosixPath("/empty"))
    with pytest.raises(RequestError, match="there is no directory"):
        checkpoint_here(disk, clock, PurePosixPath("/nowhere"))


def test_agreed_losses_are_passed_over() -> None:
    engine = written_log(*SOME * 4)
    first = DATA / "wal" / wal_file_name(1)
    engine.disk.damage(first, 700, b"\xff")
    for plan in plan_repairs(engine.disk, DATA / "wal"):
        apply_repairs(engine.disk, plan)
    check_same(engine.disk, engine)


# -- crashes


PLANS = {"prefixes": (PREFIXES, 7), "drops": (DROPS, 41), "torn": (TORN, 240)}


@pytest.mark.crash
@pytest.mark.parametrize("plan", PLANS)
def test_a_job_that_was_killed_is_finished_by_the_next_run(plan: str) -> None:
    engine = Engine(WITHOUT_COLD, 2)
    engine.do([*SOME, ("checkpoint",), *SOME, ("match", "two", "b")])
    engine.stop()
    done = engine.disk.clone()
    checkpoint_here(done, engine.clock)
    expected = topic_files(done, OUTPUT)
    engine.disk.settle()
    checkpoint_here(engine.disk, engine.clock)
    chosen, every = PLANS[plan]
    for state in slice_of(engine.disk.crash_states(plan=chosen), every):
        if state.exists(OUTPUT / "meta" / snapshot_name(2)):
            assert topic_files(state, OUTPUT) == expected, state.label
        checkpoint_here(state, engine.clock)
        assert topic_files(state, OUTPUT) == expected, state.label
        tried(f"checkpoint job, {plan}")
