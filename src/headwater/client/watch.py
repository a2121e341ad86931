"""Watching over SSE: open a session, follow its stream, and come back whatever happens.

The cursor of every topic is kept here and moves when its records have been handed over. After a
broken connection the same session is followed again from `Last-Event-ID`; when the server does not
know the session any more (it was restarted, or we were away for long), a new one is opened at the
same cursors. Where there are more of them than a request can carry, the server begins earlier, and
what was handed over before is left out here. Nothing is handed over twice and nothing is missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.api.call_list import Topics
from headwater.api.watch_starts import watch_starts
from headwater.client import answers, calls
from headwater.client.calls import HttpCall
from headwater.client.errors import NoAnswerError, error_for, error_of
from headwater.client.events import EventParser, SseEvent
from headwater.client.operations import HttpAnswer, Now, Pause, RetryPolicy, Step, call_operation
from headwater.client.retry import may_retry
from headwater.core import limits
from headwater.core.driver import HandOver
from headwater.core.errors import HeadwaterError, TopicNotFoundError
from headwater.core.records import Record
from headwater.core.results import Tombstone, TopicGone, Watched
from headwater.model.loss import RECREATED
from headwater.wire.sse import CURSOR_BYTES_MAX, encode_cursor

SILENCE_S: Final = 2.5 * calls.HEARTBEAT_MS / 1_000
"""A stream that shows no life for so long is given up and opened again."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Open a stream, in place of the one that is open. Gives an Answer: good, or an error."""

    call: HttpCall[bytes]


@dataclass(frozen=True, slots=True)
class NextBytes:
    """What the open stream brings next; b"" at its end."""


WatchStep = Step | Follow | NextBytes
WatchOperation = Generator[WatchStep | HandOver, Any, None]


@dataclass(slots=True)
class WatchRequest:
    """What is watched, and how far it has been handed over."""

    topics: dict[str, int | None]
    """By name, or by a prefix and a star; None begins at the end."""
    node: tuple[str, ...] = ()
    match: object | None = None
    cursors: dict[str, int] = field(default_factory=dict)
    opened_before: bool = False
    single: bool = False
    """One topic, by its name: what is handed over does not repeat it."""

    def hand_over(self, watched: list[Watched]) -> HandOver:
        return HandOver(map(only_item, watched) if self.single else watched)

    def opening(self) -> HttpCall[answers.WatchOpened]:
        options = {name: self._topic_options(name, begin) for name, begin in self.topics.items()}
        if self.opened_before:  # those that were matched by a prefix
            known = itertools.islice(self.cursors.items(), limits.WATCH_TOPICS_MAX)
            for name, cursor in known:
                if len(options) < limits.WATCH_TOPICS_MAX:
                    options.setdefault(name, {"from_seq": cursor})
        node = self.node or None
        return calls.open_watch(options, node, self.match, lenient=self.opened_before)

    def _topic_options(self, name: str, begin: int | None) -> dict[str, Any]:
        if name in self.cursors:
            return {"from_seq": self.cursors[name]}
        if name.endswith("*") and self.opened_before:
            return {"from_seq": 0}  # topics made while we were away; the others have cursors
        return {"tail": True} if begin is None else {"from_seq": begin}

    def opened(self, answer: answers.WatchOpened) -> list[Watched]:
        for name, cursor in answer.topics.items():
            self.cursors.setdefault(name, cursor.from_seq)
        self.opened_before = True
        return [self.gone(name) for name in answer.missing]

    def gone(self, name: str) -> Watched:
        self.cursors.pop(name, None)
        self.topics.pop(name, None)
        return Watched(name, TopicGone())

    def _seen(self, name: str, head_seq: int) -> int:
        """Up to where a topic was handed over; nothing of it, if it was made again since."""
        seen = self.cursors.get(name, 0)
        return seen if seen <= head_seq else 0

    def last_event_id(self) -> str | None:
        """Where to go on; None when that is too long to be said."""
        cursor = encode_cursor(self.cursors).decode() if self.cursors else None
        return cursor if cursor is None or len(cursor) <= CURSOR_BYTES_MAX else None

    def take(self, event: SseEvent) -> list[Watched]:
        """What an event means. An `error` event is raised."""
        if event.name == "record":
            records = answers.decode(event.data, answers.RecordsEvent)
            seen = self._seen(records.topic, records.head_seq)
            self.cursors[records.topic] = max(seen, records.to_seq)
            arrived = (each.record() for each in records.records)
            return [Watched(records.topic, record) for record in arrived if record.seq > seen]
        if event.name == "tombstone":
            gap = answers.decode(event.data, answers.TombstoneEvent)
            seen = 0 if gap.reason == RECREATED else self._seen(gap.topic, gap.head_seq)
            self.cursors[gap.topic] = max(seen, gap.gap_to)
            return [] if seen and gap.gap_to <= seen else [Watched(gap.topic, gap.tombstone())]
        if event.name == "caught-up":
            caught_up = answers.decode(event.data, answers.CaughtUpEvent)
            self.cursors[caught_up.topic] = caught_up.seq
        elif event.name == "topic-deleted":
            return [self.gone(answers.decode(event.data, answers.TopicDeletedEvent).topic)]
        elif event.name == "error":
            error = answers.decode(event.data, answers.ErrorEvent)
            raise error_for(error.code, error.message, status=503)
        return []


def watch_request(
    topics: Topics,
    node: str | Iterable[str] | None,
    match: object | None,
    *,
    from_seq: int | None,
    single: bool = False,
) -> WatchRequest:
    """Check the options of a watch before anything is sent."""
    starts = watch_starts(topics, from_seq)
    nodes = (node,) if isinstance(node, str) else tuple(node or ())
    return WatchRequest(starts, nodes, match, single=single)


def watch_operation(watch: WatchRequest, policy: RetryPolicy) -> WatchOperation:
    """For ever, or until nothing is left to watch."""
    while watch.topics:
        opened = yield from call_operation(watch.opening(), policy)
        gone = watch.opened(opened)
        if gone:
            yield watch.hand_over(gone)
        yield from _follow(watch, opened.wid, policy)


def _follow(watch: WatchRequest, wid: str, policy: RetryPolicy) -> WatchOperation:
    """Follow one session until the server forgets it."""
    failures = 0
    last_received: float = yield Now()
    while watch.topics:
        error: HeadwaterError = NoAnswerError("the server ended the stream")
        try:
            answer: HttpAnswer = yield Follow(calls.follow_watch(wid, watch.last_event_id()))
            if answer.status == 404:
                return
            if not answer.is_good:
                raise error_of(answer.status, answer.headers, answer.body)
            parser = EventParser()
            while watch.topics:
                chunk: bytes = yield NextBytes()
                if not chunk:
                    break
                failures, last_received = 0, (yield Now())
                for event in parser.feed(chunk):
                    watched = watch.take(event)
                    if watched:
                        yield watch.hand_over(watched)
        except HeadwaterError as caught:
            error = caught
            if not may_retry(error):
                raise
        failures += 1
        pause = policy.retry.delay_s(failures, error, policy.rng)
        if (yield Now()) - last_received + pause > policy.retry.give_up_after_s:
            raise error
        yield Pause(pause)


def only_item(watched: Watched) -> Record | Tombstone:
    """For a watch of one topic: as embedded, a topic that is gone is an error."""
    if isinstance(watched.item, TopicGone):
        raise TopicNotFoundError(f"there is no topic {watched.topic!r} any more")
    return watched.item


def polling_operation(
    topic: str,
    begin: int | None,
    idle_ms: int,
    node: tuple[str, ...],
    match: object | None,
    policy: RetryPolicy,
) -> WatchOperation:
    """A watch that ends when nothing came for a while: reads that wait, one after the other."""
    cursor = begin
    if cursor is None:
        cursor = (yield from call_operation(calls.get_topic(topic), policy)).head_seq
    while True:
        call = calls.diff(
            topic,
            cursor,
            limits.READ_RECORDS_CLAMP,
            wait_ms=idle_ms,
            node=node or None,
            match=match,
        )
        diff = yield from call_operation(call, policy)
        cursor = diff.next_from_seq
        items = [*([] if diff.tombstone is None else [diff.tombstone]), *diff.records]
        if items:
            yield HandOver(items)
        elif diff.caught_up:
            return
