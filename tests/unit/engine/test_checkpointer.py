"""Checkpoints: what is in the files, in the log and in memory, and what happens meanwhile.

The sweeps in `tests/crash` show that a crash at any point loses nothing. These show what each step
does, and what a write or a delete that comes between two of them finds afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

import headwater
from headwater.core.errors import DiskFullError
from headwater.engine.maintenance import checkpointer
from headwater.engine.maintenance.checkpointer import Checkpointer, TopicJob
from headwater.engine.state.topic import Topic
from headwater.format.frame import FrameType
from headwater.format.segment import IndexFlag, SegmentFile, index_flags
from headwater.store.pair import whole_entries
from tests.rig.damage import first_seqs, segment_path
from tests.unit.engine.conftest import Open
from tests.unit.engine.engine_files import frames_in_log

Step = Callable[[], None]
NAME = "orders"


class Interrupted(Checkpointer):
    """A checkpoint in which something else happens before one of its steps."""

    def __init__(
        self, db: headwater.Database, *, mark: Step | None = None, finish: Step | None = None
    ) -> None:
        super().__init__(db.engine.core)
        self._before_mark = mark
        self._before_finish = finish

    def _mark(self, jobs: Iterable[TopicJob]) -> dict[int, Exception]:
        if self._before_mark is not None:
            self._before_mark()
        refused = super()._mark(jobs)
        if self._before_finish is not None:
            self._before_finish()
        return refused


class Refused(Checkpointer):
    """A checkpoint whose mark finds no room in the log."""

    def _mark(self, jobs: Iterable[TopicJob]) -> dict[int, Exception]:
        return {self._shard_of(job): DiskFullError("the log is full") for job in jobs}


def run(db: headwater.Database) -> None:
    Checkpointer(db.engine.core).run(full=True)


def append(db: headwater.Database, *tags: str) -> None:
    db.append(NAME, [{"data": tag, "tag": tag} for tag in tags])


def topic_of(db: headwater.Database) -> Topic:
    return db.engine.topic(NAME)


def data_of(db: headwater.Database) -> Path:
    return Path(db.engine.core.directory)


def seqs_in_files(db: headwater.Database) -> list[int]:
    """Seqs that the index files have an entry for."""
    topic_id = topic_of(db).topic_id
    return [
        first + at
        for first in first_seqs(data_of(db), topic_id)
        for at in range(len(entries_of(db, first)))
    ]


def entries_of(db: headwater.Database, first_seq: int) -> Sequence[int]:
    """The flags of a segment's entries, as its index file has them."""
    path = segment_path(data_of(db), topic_of(db).topic_id, first_seq, SegmentFile.IDX)
    flags: Sequence[int] = index_flags(whole_entries(path.read_bytes())).tolist()
    return flags


def deleted_in_files(db: headwater.Database) -> list[int]:
    topic_id = topic_of(db).topic_id
    return [
        first + at
        for first in first_seqs(data_of(db), topic_id)
        for at, flags in enumerate(entries_of(db, first))
        if flags & IndexFlag.DELETED
    ]


def marks_in_log(db: headwater.Database) -> int:
    return sum(frame.type is FrameType.CHECKPOINT_MARK for frame in frames_in_log(db))


def read(db: headwater.Database) -> list[str]:
    return [record.data for record in db.diff(NAME, 0).records]


def test_a_delete_during_a_checkpoint_is_flagged_by_the_next_one(opened: Open) -> None:
    db = opened()
    append(db, "kept", "early", "late")
    run(db)
    db.delete(NAME, match="early")
    Interrupted(db, mark=lambda: void(db.delete(NAME, match="late"))).run(full=True)
    assert deleted_in_files(db) == [2], "the cut came before the second delete"
    assert topic_of(db).topic_id in db.engine.core.dirty, "or no checkpoint comes back to it"
    run(db)
    assert deleted_in_files(db) == [2, 3]
    assert topic_of(db).unflagged == []
    assert read(db) == ["kept"]


def test_a_delete_after_the_mark_is_flagged_by_the_next_one_too(opened: Open) -> None:
    db = opened()
    append(db, "kept", "late")
    run(db)
    append(db, "more")
    Interrupted(db, finish=lambda: void(db.delete(NAME, match="late"))).run(full=True)
    assert deleted_in_files(db) == []
    run(db)
    assert deleted_in_files(db) == [2]


def test_a_record_deleted_before_it_is_in_a_segment_is_written_as_deleted(opened: Open) -> None:
    db = opened()
    append(db, "kept", "gone", "kept too")
    db.delete(NAME, match="gone")
    run(db)
    assert seqs_in_files(db) == [1, 2, 3]
    assert deleted_in_files(db) == [2]
    assert topic_of(db).unflagged == []


def test_the_files_have_records_before_the_log_says_so_and_memory_knows_last(
    opened: Open,
) -> None:
    db = opened()
    append(db, "a", "b")
    before = marks_in_log(db)
    seen: list[tuple[str, list[int], int, int]] = []

    def note(step: str) -> Step:
        return lambda: seen.append(
            (step, seqs_in_files(db), marks_in_log(db) - before, len(topic_of(db).segments))
        )

    Interrupted(db, mark=note("before the mark"), finish=note("after the mark")).run(full=True)
    assert seen == [("before the mark", [1, 2], 0, 0), ("after the mark", [1, 2], 1, 0)]
    assert len(topic_of(db).segments) == 1
    assert topic_of(db).checkpointed_seq == 2


def test_a_write_during_a_checkpoint_stays_in_memory_for_the_next_one(opened: Open) -> None:
    db = opened()
    append(db, "a")
    Interrupted(db, mark=lambda: append(db, "b", "c")).run(full=True)
    topic = topic_of(db)
    assert seqs_in_files(db) == [1]
    assert topic.checkpointed_seq == 1
    assert topic.tail_bytes > 0
    assert topic.topic_id in db.engine.core.dirty
    run(db)
    assert seqs_in_files(db) == [1, 2, 3]
    assert (topic.tail_bytes, db.engine.core.tail_bytes) == (0, 0)
    assert topic.topic_id not in db.engine.core.dirty
    assert read(db) == ["a", "b", "c"]


def test_a_mark_that_the_log_refuses_leaves_memory_as_it_was(opened: Open) -> None:
    db = opened()
    append(db, "a", "b")
    size = topic_of(db).tail_bytes
    with pytest.raises(DiskFullError):
        Refused(db.engine.core).run(full=True)
    topic = topic_of(db)
    assert (topic.segments, topic.checkpointed_seq, topic.tail_bytes) == ([], 0, size)
    assert topic.topic_id in db.engine.core.dirty
    assert read(db) == ["a", "b"]
    run(db)
    assert seqs_in_files(db) == [1, 2]


def test_a_topic_dropped_during_a_checkpoint_gets_no_segments(opened: Open) -> None:
    db = opened()
    append(db, "a")
    topic = topic_of(db)
    Interrupted(db, mark=lambda: void(db.drop(NAME))).run(full=True)
    assert topic.segments == []
    assert db.engine.core.counters.checkpoints == 1


def test_what_a_cap_took_before_a_checkpoint_reaches_no_segment(opened: Open) -> None:
    db = opened()
    db.create(NAME, cap_records=2)
    append(db, *"abcde")
    run(db)
    assert seqs_in_files(db) == [4, 5]


def test_what_is_written_after_a_topic_became_ephemeral_reaches_no_segment(opened: Open) -> None:
    db = opened()
    append(db, "a")
    db.create(NAME, durability="ephemeral")
    append(db, "b")
    run(db)
    assert seqs_in_files(db) == [1]
    assert topic_of(db).checkpointed_seq == 1
    assert read(db) == ["a", "b"]


def test_a_large_topic_goes_into_segments_in_runs_that_follow_each_other(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer, "SLICE_BYTES_MAX", 200)
    monkeypatch.setattr(checkpointer, "RUN_BYTES_MAX", 500)
    db = opened()
    words = [f"record {number}" for number in range(40)]
    for word in words:
        append(db, word)
    run(db)
    assert seqs_in_files(db) == list(range(1, 41))
    assert first_seqs(data_of(db), topic_of(db).topic_id) == [1, 11, 21, 31]
    db.close()
    assert read(opened()) == words


def void(result: object) -> None:
    """For a step: what the call gives is of no interest."""
