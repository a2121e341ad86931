"""Which topics a log speaks of: what each kind of frame does, and that order matters little."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest

from headwater.config.topic import TopicSettings
from headwater.format.control_frames import (
    CheckpointEntry,
    RecordsDeleted,
    RouterCreated,
    TopicCreated,
    encode_body,
    encode_checkpoint_mark,
    encode_evict_watermark,
    encode_head_watermark,
)
from headwater.format.frame import Frame, FrameType, decode_frame
from headwater.format.snapshot import Snapshot, TopicMeta
from headwater.recovery.history.contents import CONTENT_FRAMES
from headwater.recovery.history.topics import TABLE_FRAMES, TopicFold, TopicSink, TopicTable
from headwater.recovery.topics.catalog import Catalog, TopicNotes
from headwater.recovery.topics.stored_topic import StoredTopic

STORED = TopicSettings().to_stored()


@dataclass(slots=True)
class Held:
    topic_id: int
    name: str
    epoch: int
    stored: StoredTopic = field(default_factory=StoredTopic)
    checkpointed_seq: int = 0


class Said(TopicSink[Held]):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def make(self, topic_id: int, body: TopicCreated) -> Held:
        self.calls.append(("make", topic_id))
        return Held(topic_id, body.name, body.epoch)

    def forgotten(self, topic: Held) -> None:
        self.calls.append(("forgotten", topic.topic_id))

    def forgotten_before(self, topic_id: int) -> None:
        self.calls.append(("forgotten before", topic_id))

    def moved(self, topic: Held) -> None:
        self.calls.append(("moved", topic.topic_id))


def decoded(encoded: bytes) -> Frame:
    return decode_frame(memoryview(encoded), 0, len(encoded))


def created(topic_id: int, name: str, epoch: int = 1) -> Frame:
    body = TopicCreated(name, epoch, STORED)
    return decoded(encode_body(FrameType.TOPIC_CREATE, topic_id, 1, body))


def dropped(topic_id: int) -> Frame:
    return decoded(encode_body(FrameType.TOPIC_DELETE, topic_id, 1, None))


def deleted(topic_id: int, body: RecordsDeleted) -> Frame:
    return decoded(encode_body(FrameType.DELETE, topic_id, 1, body))


def mark(topic_id: int, upto: int, floor: int = 1, active: tuple[int, int] = (0, 0)) -> Frame:
    entry = CheckpointEntry(topic_id, upto, floor, floor, *active)
    return decoded(encode_checkpoint_mark([entry], 1))


def evicted(topic_id: int, floor: int, earliest: int, reason: int) -> Frame:
    return decoded(encode_evict_watermark(topic_id, 1, floor, earliest, reason))


def router(router_id: int, dest_id: int) -> Frame:
    return decoded(
        encode_body(FrameType.ROUTER_CREATE, dest_id, 1, RouterCreated(router_id, "r", 1, 0, {}))
    )


def meta(topic_id: int, name: str, epoch: int = 1) -> TopicMeta:
    return TopicMeta(
        topic_id=topic_id,
        name=name,
        epoch=epoch,
        settings=STORED,
        head_seq=10,
        ceiling=0,
        evict_floor=1,
        earliest_seq=1,
        delete_below=0,
        eviction_reason=0,
        count=10,
        bytes=100,
        last_ts=1,
        checkpointed_seq=10,
        active_first_seq=1,
        active_data_bytes=500,
    )


SNAPSHOT = Snapshot(3, 5, (meta(2, "known"),), (), {"gone": 2})


def folded(*frames: Frame, snapshot: Snapshot | None = SNAPSHOT) -> tuple[TopicTable[Held], Said]:
    table: TopicTable[Held] = TopicTable()
    if snapshot is not None:
        table.begin(
            snapshot, lambda m: Held(m.topic_id, m.name, m.epoch, StoredTopic.from_meta(m), 10)
        )
    said = Said()
    fold = TopicFold(table, said)
    for frame in frames:
        fold.take(frame)
    return table, said


@pytest.mark.parametrize(
    ("frames", "calls", "names", "next_topic_id"),
    [
        ([created(5, "new")], [("make", 5)], {"known": 2, "new": 5}, 6),
        ([created(2, "known")], [], {"known": 2}, 5),
        ([created(3, "gone", 2)], [], {"known": 2}, 5),
        ([created(3, "gone", 1)], [], {"known": 2}, 5),
        ([created(3, "gone", 3)], [("make", 3)], {"known": 2, "gone": 3}, 5),
        ([created(5, "gone", 2)], [("make", 5)], {"known": 2, "gone": 5}, 6),
        ([created(1, "known", 1)], [], {"known": 2}, 5),
        ([created(7, "known", 2)], [("forgotten", 2), ("make", 7)], {"known": 7}, 8),
        ([dropped(2)], [("forgotten", 2)], {}, 5),
        ([dropped(9)], [("forgotten before", 9)], {"known": 2}, 5),
        ([router(9, 2)], [], {"known": 2}, 10),
        ([router(3, 2)], [], {"known": 2}, 5),
        ([mark(9, 5)], [], {"known": 2}, 5),
    ],
    ids=[
        "a new topic",
        "one that is known",
        "one that was dropped, as the snapshot knows",
        "an older one of that name",
        "one that was made before the snapshot, which does not know it",
        "one with an id that nobody was given",
        "an older one than the one that is known",
        "a newer one of its name",
        "one that is dropped",
        "one that is dropped and not known",
        "a router with a new id",
        "a router with an id that was given out",
        "a mark of a topic that is gone",
    ],
)
def test_what_each_frame_makes_of_the_table(
    frames: list[Frame],
    calls: list[tuple[Any, ...]],
    names: dict[str, int],
    next_topic_id: int,
) -> None:
    table, said = folded(*frames)
    assert said.calls == calls
    assert {topic.name: topic.topic_id for topic in table} == names
    assert all(table.find(name) is table.by_id(topic_id) for name, topic_id in names.items())
    assert table.next_topic_id == next_topic_id


def test_the_epoch_of_a_name_outlives_its_topic_and_ends_with_the_next() -> None:
    table, _ = folded(dropped(2))
    assert table.epochs == {"gone": 2, "known": 1}
    assert (table.epoch_of("known"), table.epoch_of("never")) == (1, 0)
    table, _ = folded(dropped(2), created(6, "known", 2))
    assert table.epochs == {"gone": 2}
    assert table.epoch_of("known") == 2


def test_shards_that_are_read_one_behind_the_other_give_the_same_topics_in_any_order() -> None:
    shards = [
        [created(5, "a"), dropped(5), created(9, "c")],
        [created(6, "a", 2), dropped(6)],
        [created(7, "a", 3), dropped(2)],
    ]
    found = set()
    for order in itertools.permutations(shards):
        table, _ = folded(*itertools.chain(*order))
        found.add(
            (tuple(sorted((t.name, t.topic_id, t.epoch) for t in table)), table.next_topic_id)
        )
    assert found == {((("a", 7, 3), ("c", 9, 1)), 10)}


@pytest.mark.parametrize(
    ("frame", "moved", "checkpointed", "stored"),
    [
        (mark(2, 20, active=(11, 70)), True, 20, (20, 11, 70, 1, 1)),
        (mark(2, 10, active=(1, 500)), False, 10, (10, 1, 500, 1, 1)),
        (mark(2, 10, 4, active=(1, 500)), True, 10, (10, 1, 500, 4, 4)),
        (mark(2, 9, 4, active=(1, 400)), False, 10, (10, 1, 500, 1, 1)),
    ],
    ids=["further", "what the snapshot says", "as far, with a floor", "older"],
)
def test_a_mark_moves_the_reach_of_files_and_never_back(
    frame: Frame, moved: bool, checkpointed: int, stored: tuple[int, ...]
) -> None:
    table, said = folded(frame)
    topic = table.by_id(2)
    assert topic is not None
    assert said.calls == ([("moved", 2)] if moved else [])
    assert topic.checkpointed_seq == checkpointed
    held = topic.stored
    reach = (held.head_seq, held.active_first_seq, held.active_data_bytes)
    assert (*reach, held.evict_floor, held.earliest_seq) == stored


def test_a_mark_that_reaches_further_counts_though_the_snapshot_knew_that_head() -> None:
    known = Snapshot(3, 5, (meta(2, "known"),), (), {})
    table, said = folded(snapshot=known)
    topic = table.by_id(2)
    assert topic is not None
    topic.stored.head_seq, topic.checkpointed_seq = 30, 10
    topic.stored.active_first_seq = topic.stored.active_data_bytes = 0
    TopicFold(table, said).take(mark(2, 20))
    assert (topic.checkpointed_seq, topic.stored.head_seq) == (20, 30)
    assert said.calls == [("moved", 2)]


@pytest.mark.parametrize(
    ("frames", "floors"),
    [
        ([evicted(2, 5, 7, 1)], (5, 7, 0, 1)),
        ([evicted(2, 5, 7, 1), evicted(2, 3, 4, 2)], (5, 7, 0, 3)),
        ([deleted(2, RecordsDeleted(9, 6))], (1, 1, 6, 0)),
        ([deleted(2, RecordsDeleted(9, 20))], (1, 1, 10, 0)),
        ([deleted(2, RecordsDeleted(9))], (1, 1, 10, 0)),
        ([deleted(2, RecordsDeleted(9, 6)), deleted(2, RecordsDeleted(9, 3))], (1, 1, 6, 0)),
        ([deleted(2, RecordsDeleted(9, 6, "t"))], (1, 1, 0, 0)),
        ([deleted(2, RecordsDeleted(0, 0, seqs=(4, 5)))], (1, 1, 0, 0)),
        ([evicted(9, 5, 7, 1), deleted(9, RecordsDeleted(9, 6))], (1, 1, 0, 0)),
    ],
    ids=[
        "evicted",
        "evicted twice: floors only rise",
        "everything before a seq",
        "before a seq behind the head of then",
        "everything up to the head of then",
        "deleted twice",
        "by tag: no floor",
        "by seq: no floor",
        "of a topic that is gone",
    ],
)
def test_floors_rise_and_never_fall_back(frames: list[Frame], floors: tuple[int, ...]) -> None:
    table, said = folded(*frames)
    topic = table.by_id(2)
    assert topic is not None
    held = topic.stored
    assert (held.evict_floor, held.earliest_seq, held.delete_below, held.losses) == floors
    assert held.first_needed == max(floors[:3])
    assert said.calls == []


def test_each_kind_of_frame_is_about_the_table_or_contents_or_is_neither_for_a_reason() -> None:
    neither = {
        FrameType.APPEND: "records: rows, not frames",
        FrameType.COMMIT_MARK: "of the log itself",
        FrameType.ROUTER_DELETE: "of routers",
        FrameType.ROUTER_MARK: "of routers",
        FrameType.SEQ_CEILINGS: "of routers",
    }
    assert TABLE_FRAMES | CONTENT_FRAMES | neither.keys() == set(FrameType)
    assert not (TABLE_FRAMES | CONTENT_FRAMES) & neither.keys()
    assert {FrameType.DELETE, FrameType.EVICT_WATERMARK} == TABLE_FRAMES & CONTENT_FRAMES


def test_notes_of_a_stretch_give_what_its_frames_give_one_by_one() -> None:
    frames = [
        created(5, "a"),
        evicted(5, 3, 4, 1),
        deleted(2, RecordsDeleted(9, 6)),
        mark(5, 20, 2, active=(11, 70)),
        mark(2, 15, 5, active=(11, 70)),
        evicted(2, 2, 8, 2),
        created(6, "b"),
        dropped(6),
        created(7, "known", 2),
        dropped(9),
    ]
    one_by_one, by_notes = Catalog(SNAPSHOT), Catalog(SNAPSHOT)
    notes: dict[int, TopicNotes] = {}
    for frame in frames:
        one_by_one.note(frame)
        if frame.type is FrameType.CHECKPOINT_MARK:
            upto = {5: (20, 2), 2: (15, 5)}
            for topic_id, (seq, floor) in upto.items():
                if frame == mark(topic_id, seq, floor, active=(11, 70)):
                    entry = CheckpointEntry(topic_id, seq, floor, floor, 11, 70)
                    notes.setdefault(topic_id, TopicNotes()).take_mark(entry)
        else:
            notes.setdefault(frame.topic_id, TopicNotes()).take(frame)
    by_notes.take(notes)

    def state(catalog: Catalog) -> list[Any]:
        topics = [(t.topic_id, t.name, t.epoch, t.checkpointed_seq, t.stored) for t in catalog]
        return [topics, catalog.epochs, catalog.next_topic_id]

    assert state(by_notes) == state(one_by_one)
    assert [topic.name for topic in by_notes] == ["a", "known"]


def test_a_ceiling_and_settings_are_noted_for_those_who_go_on_from_a_catalog() -> None:
    catalog, noted = Catalog(SNAPSHOT), TopicNotes()
    noted.take(decoded(encode_head_watermark(2, 40, 1)))
    noted.take(decoded(encode_head_watermark(2, 30, 1)))
    catalog.take({2: noted})
    topic = catalog.by_id(2)
    assert topic is not None
    assert (topic.ceiling, topic.is_behind) == (40, False)
