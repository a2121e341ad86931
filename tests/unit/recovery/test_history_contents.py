"""What one topic holds: what each kind of entry of the log gives the reader to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import pytest
from numpy.typing import NDArray

from headwater.config.topic import TopicSettings
from headwater.core.durability import Durability
from headwater.core.errors import FormatError
from headwater.format.control_frames import (
    IdempotencyEntry,
    LeaseEvent,
    LeaseKind,
    RecordsDeleted,
    RouterDeleted,
    SettingsChanged,
    TopicCreated,
    encode_body,
    encode_evict_watermark,
    encode_head_watermark,
    encode_idempotency,
    encode_lease_event,
    encode_router_places,
)
from headwater.format.frame import Frame, FrameType, decode_frame, encode_frame
from headwater.model.loss import Loss
from headwater.model.match import TagMatcher
from headwater.recovery.history.contents import ContentSink, Deletion, TopicHistory

FSYNC = TopicSettings()
FORGETFUL = TopicSettings(durability=Durability.EPHEMERAL)


@dataclass(slots=True)
class Columns:
    seqs: NDArray[numpy.int64]
    ts: NDArray[numpy.uint64]


def rows(*seqs: int) -> Columns:
    return Columns(numpy.array(seqs, numpy.int64), numpy.array(seqs, numpy.uint64) * 10)


@dataclass(slots=True)
class Said(ContentSink[Columns]):
    head_seq: int = 0
    settings: TopicSettings = FSYNC
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def append(self, rows: Columns, start: int, end: int) -> None:
        self.calls.append(("append", rows.seqs[start:end].tolist()))
        self.head_seq = int(rows.seqs[end - 1])

    def fill(self, upto_seq: int, ts: int, *, lost: bool) -> None:
        self.calls.append(("fill", upto_seq, ts, lost))
        self.head_seq = upto_seq

    def delete_before(self, seq: int) -> None:
        self.calls.append(("delete before", seq))

    def delete(self, deletion: Deletion) -> None:
        self.calls.append(("delete", *deletion))

    def reconfigure(self, settings: TopicSettings) -> None:
        self.calls.append(("reconfigure", settings))
        self.settings = settings

    def evict(self, evict_floor: int, earliest_seq: int, losses: Loss) -> None:
        self.calls.append(("evict", evict_floor, earliest_seq, losses))

    def reserve(self, ceiling: int) -> None:
        self.calls.append(("reserve", ceiling))

    def lease(self, event: LeaseEvent, ts: int) -> None:
        self.calls.append(("lease", event, ts))

    def remember(self, entry: IdempotencyEntry) -> None:
        self.calls.append(("remember", entry))


def decoded(encoded: bytes) -> Frame:
    return decode_frame(memoryview(encoded), 0, len(encoded))


def deleted(body: RecordsDeleted) -> Frame:
    return decoded(encode_body(FrameType.DELETE, 2, 1, body))


def changed(settings: TopicSettings) -> Frame:
    body = SettingsChanged(settings.to_stored())
    return decoded(encode_body(FrameType.CONFIG_UPDATE, 2, 1, body))


def places(last_seq: int, *, lost: bool) -> Frame:
    return decoded(encode_router_places(2, last_seq, 77, lost=lost))


def key(first_seq: int, last_seq: int) -> IdempotencyEntry:
    return IdempotencyEntry(b"k%d" % first_seq, first_seq, last_seq, 99, False)


def keyed(entry: IdempotencyEntry) -> Frame:
    return decoded(encode_idempotency(2, entry, 1))


EVENT = LeaseEvent(LeaseKind.CLAIMED, (4,), "w", 1, 1000)


def history(*entries: Frame | Columns, head: int = 0, settings: TopicSettings = FSYNC) -> Said:
    said = Said(head, settings)
    fold = TopicHistory(said)
    for entry in entries:
        if isinstance(entry, Columns):
            fold.append(entry)
        else:
            assert fold.apply(entry)
    fold.finish()
    return said


@pytest.mark.parametrize(
    ("frame", "call"),
    [
        (deleted(RecordsDeleted(9, 6)), ("delete before", 6)),
        (deleted(RecordsDeleted(9, 60)), ("delete before", 10)),
        (deleted(RecordsDeleted(9)), ("delete before", 10)),
        (deleted(RecordsDeleted(9, 6, "t")), ("delete", 5, TagMatcher(b"t", False), ())),
        (deleted(RecordsDeleted(9, None, "t", True)), ("delete", 9, TagMatcher(b"t", True), ())),
        (deleted(RecordsDeleted(0, 0, seqs=(4, 7))), ("delete", 7, None, (4, 7))),
        (changed(FORGETFUL), ("reconfigure", FORGETFUL)),
        (decoded(encode_evict_watermark(2, 1, 5, 7, 3)), ("evict", 5, 7, Loss(3))),
        (decoded(encode_head_watermark(2, 40, 1)), ("reserve", 40)),
        (decoded(encode_lease_event(2, EVENT, 8)), ("lease", EVENT, 8)),
        (keyed(key(3, 4)), ("remember", key(3, 4))),
        (places(12, lost=True), ("fill", 12, 77, True)),
        (places(12, lost=False), ("fill", 12, 77, False)),
    ],
)
def test_what_each_frame_gives_to_do(frame: Frame, call: tuple[Any, ...]) -> None:
    assert history(frame, head=10).calls == [call]


@pytest.mark.parametrize(
    "frame",
    [
        decoded(encode_body(FrameType.TOPIC_CREATE, 2, 1, TopicCreated("a", 1, {}))),
        decoded(encode_body(FrameType.TOPIC_DELETE, 2, 1, None)),
        decoded(encode_body(FrameType.ROUTER_DELETE, 2, 1, RouterDeleted(1))),
        decoded(encode_frame(FrameType.APPEND, 2, seq=1)),
    ],
    ids=["created", "dropped", "of a router", "a record"],
)
def test_frames_about_something_else_are_left_alone(frame: Frame) -> None:
    said = Said()
    assert not TopicHistory(said).apply(frame)
    assert said.calls == []


@pytest.mark.parametrize(
    ("head", "seqs", "known", "calls"),
    [
        (0, (1, 2, 3), 0, [("append", [1, 2, 3])]),
        (3, (1, 2, 3), 3, []),
        (9, (1, 2, 3), 3, []),
        (2, (1, 2, 3, 4), 2, [("append", [3, 4])]),
        (0, (3, 4), 0, [("fill", 2, 30, False), ("append", [3, 4])]),
        (1, (2, 3, 6, 7), 0, [("append", [2, 3]), ("fill", 5, 60, False), ("append", [6, 7])]),
        (4, (2, 3, 6, 7), 2, [("fill", 5, 60, False), ("append", [6, 7])]),
    ],
    ids=["new", "known", "older", "partly known", "a gap first", "a gap within", "both"],
)
def test_records_are_appended_in_runs_behind_the_head(
    head: int, seqs: Sequence[int], known: int, calls: list[tuple[Any, ...]]
) -> None:
    said = Said(head)
    assert TopicHistory(said).append(rows(*seqs)) == known
    assert said.calls == calls


@pytest.mark.parametrize(
    ("settings", "entries", "lost"),
    [
        (FORGETFUL, [changed(FSYNC), rows(5)], [True]),
        (FORGETFUL, [changed(FSYNC), rows(1), rows(5)], [False]),
        (FORGETFUL, [changed(FORGETFUL), changed(FSYNC), rows(5)], [True]),
        (FORGETFUL, [changed(FSYNC), rows(5), rows(9)], [True, False]),
        (FSYNC, [changed(FORGETFUL), rows(5)], [False]),
        (FSYNC, [rows(5)], [False]),
    ],
    ids=[
        "was not logged until then",
        "a record that is logged came since",
        "changed twice",
        "only the first gap",
        "logged until then",
        "always logged",
    ],
)
def test_a_gap_is_a_loss_only_behind_a_class_that_is_not_logged(
    settings: TopicSettings, entries: list[Frame | Columns], lost: list[bool]
) -> None:
    fills = [call[-1] for call in history(*entries, settings=settings).calls if call[0] == "fill"]
    assert fills == lost


def test_what_was_never_logged_is_told_as_long_as_no_record_came_since() -> None:
    fold = TopicHistory(Said(settings=FORGETFUL))
    told = [fold.was_ephemeral]
    fold.apply(changed(FSYNC))
    told.append(fold.was_ephemeral)
    fold.append(rows(1))
    assert [*told, fold.was_ephemeral] == [False, True, False]


def test_a_key_holds_only_if_the_records_behind_it_came() -> None:
    calls = history(keyed(key(1, 2)), rows(1, 2), keyed(key(3, 5)), rows(3, 4)).calls
    assert ("remember", key(1, 2)) in calls
    assert ("remember", key(3, 5)) not in calls
    assert calls[-1][0] == "remember"  # once everything was read


def test_a_key_is_remembered_once_though_the_log_is_followed_further() -> None:
    said = Said()
    fold = TopicHistory(said)
    fold.apply(keyed(key(1, 1)))
    fold.append(rows(1))
    fold.finish()
    fold.append(rows(2))
    fold.finish()
    assert [call[0] for call in said.calls] == ["append", "remember", "append"]


def test_places_of_a_router_below_the_head_are_taken_already() -> None:
    assert history(places(4, lost=True), head=4).calls == []


def test_a_body_that_this_version_does_not_know_is_refused() -> None:
    encoded = encode_frame(FrameType.CONFIG_UPDATE, 2, data=b'{"settings":{},"more":1}')
    with pytest.raises(FormatError):
        TopicHistory(Said()).apply(decoded(encoded))


def test_a_reader_that_needs_no_seqs_keys_or_jobs_leaves_them_out() -> None:
    class Reader(ContentSink[Columns]):
        head_seq = 9

    reader = Reader()  # type: ignore[abstract]
    reader.reserve(1)
    reader.lease(EVENT, 1)
    reader.remember(key(1, 1))
