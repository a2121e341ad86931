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
from typing import Any, Final, Protocol

from headwater.api.call_list import DiffCall, StateCall, Topics, watch_starts
from headwater.client import answers, calls
from headwater.client.calls import HttpCall
from headwater.client.errors import NoAnswerError, error_for, error_of
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
class SseEvent:
    name: str
    data: bytes


class EventParser:
    """Server-sent events from bytes, however they are cut.

    Feed it what arrives; it gives whole events. Comments and fields we do not use are left
    out. Lines end with LF or CRLF. An event that the connection cut off never comes out.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._scanned = 0
        self._name = "message"
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[SseEvent]:
        rest = self._rest
        rest += chunk
        events: list[SseEvent] = []
        start = 0
        while True:
            end = rest.find(b"\n", max(self._scanned, start))
            if end < 0:
                break
            line = bytes(rest[start:end])
            start = end + 1
            event = self._take(line[:-1] if line.endswith(b"\r") else line)
            if event is not None:
                events.append(event)
        del rest[:start]
        self._scanned = len(rest)
        return events

    def _take(self, line: bytes) -> SseEvent | None:
        if not line:
            event = SseEvent(self._name, b"\n".join(self._data)) if self._data else None
            self._name, self._data = "message", []
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None


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
            topic = answers.decode(event.data, answers.TopicEvent).topic
            gap = answers.decode(event.data, Tombstone)
            seen = 0 if gap.reason == RECREATED else self._seen(topic, gap.head_seq)
            self.cursors[topic] = max(seen, gap.gap_to)
            return [] if seen and gap.gap_to <= seen else [Watched(topic, gap)]
        if event.name == "caught-up":
            caught_up = answers.decode(event.data, answers.CaughtUpEvent)
            self.cursors[caught_up.topic] = caught_up.seq
        elif event.name == "topic-deleted":
            return [self.gone(answers.decode(event.data, answers.TopicEvent).topic)]
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
        yield from follow_events(_Session(watch, opened.wid), policy)


@dataclass(slots=True)
class _Session:
    """FollowedStream until the server forgets it."""

    watch: WatchRequest
    wid: str

    def is_over(self) -> bool:
        return not self.watch.topics

    def stream(self) -> HttpCall[bytes]:
        return calls.follow_watch(self.wid, self.watch.last_event_id())

    def is_forgotten(self, answer: HttpAnswer) -> bool:
        return answer.status == 404

    def take(self, event: SseEvent) -> HandOver | None:
        watched = self.watch.take(event)
        return self.watch.hand_over(watched) if watched else None


class FollowedStream(Protocol):
    """A stream of events, and how far it has been handed over."""

    def is_over(self) -> bool:
        """Nothing more is wanted of it."""

    def stream(self) -> HttpCall[bytes]:
        """The request that goes on behind what was handed over."""

    def is_forgotten(self, answer: HttpAnswer) -> bool:
        """The server does not know it any more: it ends here."""

    def take(self, event: SseEvent) -> HandOver | None:
        """What an event means."""


def follow_events(followed: FollowedStream, policy: RetryPolicy) -> WatchOperation:
    """Until it is over or forgotten, over as many connections as that takes."""
    failures = 0
    last_received: float = yield Now()
    while not followed.is_over():
        error: HeadwaterError = NoAnswerError("the server ended the stream")
        try:
            answer: HttpAnswer = yield Follow(followed.stream())
            if followed.is_forgotten(answer):
                return
            if not answer.is_good:
                raise error_of(answer.status, answer.headers, answer.body)
            parser = EventParser()
            while True:
                chunk: bytes = yield NextBytes()
                if not chunk:
                    break
                failures, last_received = 0, (yield Now())
                for event in parser.feed(chunk):
                    handed = followed.take(event)
                    if handed is not None:
                        yield handed
                    if followed.is_over():
                        return
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
        cursor = (yield from call_operation(calls.get_topic(StateCall(topic)), policy)).head_seq
    while True:
        most, most_bytes = limits.READ_RECORDS_CLAMP, limits.READ_BYTES_DEFAULT
        call = DiffCall(topic, cursor, most, most_bytes, idle_ms, node or None, match)
        diff = yield from call_operation(calls.diff(call), policy)
        cursor = diff.next_from_seq
        items = [*([] if diff.tombstone is None else [diff.tombstone]), *diff.records]
        if items:
            yield HandOver(items)
        elif diff.caught_up:
            return
