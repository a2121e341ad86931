"""What a watch has handed over, and where it goes on: without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.client import answers
from headwater.client.watch import SseEvent, WatchRequest, watch_request
from headwater.core.limits import WATCH_TOPICS_MAX
from headwater.core.records import Record
from headwater.core.results import Tombstone, Watched
from headwater.wire.sse import decode_cursor


def asked(watch: WatchRequest) -> dict[str, Any]:
    body = watch.opening().body
    assert body is not None
    topics: dict[str, Any] = json.loads(body)["topics"]
    return topics


def opened(watch: WatchRequest, **heads: int) -> None:
    """A session is open, and tells where it begins in each topic."""
    topics = {name: {"from_seq": seq, "head_seq": seq} for name, seq in heads.items()}
    body = json.dumps({"wid": "w", "topics": topics, "missing": []})
    watch.opened(answers.decode(body.encode(), answers.WatchOpened))


def records(topic: str, *seqs: int, head: int) -> SseEvent:
    sent = [{"$seq": seq, "$ts": 1, "data": seq} for seq in seqs]
    event = {"topic": topic, "records": sent, "to_seq": seqs[-1], "head_seq": head}
    return SseEvent("record", json.dumps(event).encode())


def lost(topic: str, gap_from: int, gap_to: int, reason: str, head: int) -> SseEvent:
    event = {
        "topic": topic, "gap_from": gap_from, "gap_to": gap_to, "reason": reason,
        "missed_estimate": 1, "earliest_seq": gap_to + 1, "head_seq": head,
    }  # fmt: skip
    return SseEvent("tombstone", json.dumps(event).encode())


def seqs(watched: list[Watched]) -> list[int]:
    return [each.item.seq for each in watched if isinstance(each.item, Record)]


@pytest.fixture
def watch() -> WatchRequest:
    watch = watch_request("p.*", None, None, from_seq=0)
    assert asked(watch) == {"p.*": {"from_seq": 0}}
    opened(watch)
    assert seqs(watch.take(records("p.a", 1, 2, 3, head=9))) == [1, 2, 3]
    return watch


def test_topics_found_by_a_prefix_are_opened_again_where_they_were(watch: WatchRequest) -> None:
    opened(watch, **{"p.b": 7})
    assert asked(watch) == {
        "p.*": {"from_seq": 0},
        "p.a": {"from_seq": 3},
        "p.b": {"from_seq": 7},
    }


def test_more_topics_than_a_watch_can_name_are_left_to_the_prefix(watch: WatchRequest) -> None:
    opened(watch, **{f"p.{number}": number for number in range(1_000)})
    again = asked(watch)
    assert len(again) == WATCH_TOPICS_MAX
    assert "p.*" in again


def test_what_was_handed_over_is_not_handed_over_again(watch: WatchRequest) -> None:
    assert seqs(watch.take(records("p.a", 1, 2, head=9))) == []
    assert seqs(watch.take(records("p.a", 3, 4, 5, head=9))) == [4, 5]
    assert watch.take(lost("p.a", 1, 4, "cap", 9)) == []
    assert watch.cursors["p.a"] == 5
    (gap,) = watch.take(lost("p.a", 6, 7, "cap", 9))
    assert isinstance(gap.item, Tombstone)
    assert seqs(watch.take(records("p.a", 8, head=9))) == [8]


def test_a_topic_made_again_is_handed_over_from_its_beginning(watch: WatchRequest) -> None:
    assert seqs(watch.take(records("p.a", 1, head=1))) == [1], "its head is below where we were"
    watch.take(records("p.a", 2, 3, 4, head=4))
    (gap,) = watch.take(lost("p.a", 1, 0, "recreated", 9))
    assert isinstance(gap.item, Tombstone)
    assert seqs(watch.take(records("p.a", 1, 2, head=9))) == [1, 2]


def test_a_cursor_too_long_for_a_header_is_not_sent(watch: WatchRequest) -> None:
    known = watch.last_event_id()
    assert known is not None
    assert decode_cursor(known) == {"p.a": 3}
    opened(watch, **{f"p.{number:060}": number for number in range(2_000)})
    assert watch.last_event_id() is None
