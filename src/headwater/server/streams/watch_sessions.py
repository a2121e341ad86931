"""Watch sessions: what a client wants to follow, kept until it comes to fetch the stream; and that
stream, as server-sent events."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headwater.config.topic import check_topic_name
from headwater.core.errors import InvalidRequestError
from headwater.core.limits import WATCH_TOPICS_MAX
from headwater.engine.partition import Partition
from headwater.engine.topics.operations import diff_request
from headwater.model.match import TagMatcher, parse_match
from headwater.server.access.keys import ApiKey
from headwater.server.access.quotas import Shares
from headwater.server.backend import refuse_partitions
from headwater.server.http.exchange import Exchange, body_of
from headwater.server.http.topic_handlers import answer, flag
from headwater.server.streams.delivery import Batch, Delivery, ReadOptions
from headwater.server.streams.open_streams import SseStream, answers_head, require_event_stream
from headwater.server.streams.topic_subscriptions import TopicSubscriptions
from headwater.wire import sse
from headwater.wire.frames import Projection
from headwater.wire.http_errors import HttpError
from headwater.wire.requests import WatchRequest, WatchTopic, decode_request

HEARTBEAT_MS_CLAMP: Final = (1_000, 60_000)


@dataclass(slots=True)
class Watch:
    """What to follow, and how far the client has come."""

    wid: str
    key: ApiKey
    prefixes: tuple[str, ...]
    projection: Projection
    limit: int
    bytes_max: int
    heartbeat_us: int
    nodes: frozenset[bytes]
    matcher: TagMatcher | None
    strong: bool
    expires_us: int
    start: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Where it begins in each topic: the topic's id, and the seq before."""
    sent: dict[str, int] = field(default_factory=dict)
    """How far any stream of it has come. A client can go back behind it, not beyond."""
    streams: int = 0
    missing: tuple[str, ...] = ()

    def covers(self, topic: Partition) -> bool:
        """Whether a topic that appeared belongs to it."""
        return (
            topic.name.startswith(self.prefixes)
            and self.key.may_name(topic.name)
            and not (self.strong and is_never_synced(topic))
        )


def is_never_synced(topic: Partition) -> bool:
    return not topic.settings.durability.is_logged


class WatchSessions:
    def __init__(self, delivery: Delivery, shares: Shares, ttl_ms: int) -> None:
        self.delivery = delivery
        self._backend = delivery.backend
        self._shares = shares
        self._now_us = delivery.streams.now_us
        self.ttl_ms = ttl_ms
        self._by_id: dict[str, Watch] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, request: WatchRequest, key: ApiKey, *, lenient: bool) -> Watch:
        self._shares.require(key.digest)
        if not 1 <= len(request.topics) <= WATCH_TOPICS_MAX:
            raise InvalidRequestError(f"a watch takes 1 to {WATCH_TOPICS_MAX} topics")
        if request.consistency not in ("eventual", "strong"):
            raise InvalidRequestError("consistency is eventual or strong")
        read = diff_request(0, request.limit, request.max_batch_bytes, node=request.node)
        low, high = HEARTBEAT_MS_CLAMP
        watch = Watch(
            secrets.token_urlsafe(18),
            key,
            tuple(name[:-1] for name in request.topics if name.endswith("*")),
            Projection(request.include_tags, request.include_meta, request.include_data),
            read.limit,
            read.bytes_max,
            min(max(request.heartbeat_ms, low), high) * 1_000,
            read.nodes,
            None if request.match is None else parse_match(request.match),
            request.consistency == "strong",
            self._now_us() + self.ttl_ms * 1_000,
        )
        self._set_cursors(watch, request, lenient=lenient)
        self._shares.take(key.digest)
        self._by_id[watch.wid] = watch
        return watch

    def _set_cursors(self, watch: Watch, request: WatchRequest, *, lenient: bool) -> None:
        engine = self._backend.engine
        missing = []
        for name, start_at in request.topics.items():
            prefix = name.removesuffix("*")
            if prefix or prefix == name:
                check_topic_name(prefix)
            watch.key.require_name(prefix)
            if prefix != name:
                refuse_partitions(prefix, "name each one that is to be watched")
                for topic in engine.topics.list(prefix, None):
                    if topic.name not in request.topics and watch.covers(topic):
                        _begin(watch, topic, start_at)
                continue
            space = self._backend.space(name, watch.key)
            one = space.find(name) if lenient else space.topic(name)
            if one is None:
                missing.append(name)
                continue
            if watch.strong:
                refuse_partitions(name, "it is watched with consistency eventual only")
            if watch.strong and is_never_synced(one):
                raise InvalidRequestError(
                    f"{name!r} is ephemeral and never synced; it cannot be watched with "
                    "consistency strong"
                )
            _begin(watch, one, start_at)
        watch.missing = tuple(missing)

    def get(self, wid: str, key: ApiKey) -> Watch:
        watch = self._by_id.get(wid)
        if watch is None or watch.key.digest != key.digest:
            # The watch of another key is as unknown as none at all.
            raise HttpError("not_found", "there is no such watch; open a new one")
        return watch

    def expire(self, now_us: int) -> None:
        for wid in [w.wid for w in self._by_id.values() if not w.streams and w.expires_us < now_us]:
            watch = self._by_id.pop(wid)
            self._shares.give_back(watch.key.digest)

    def touch(self, watch: Watch) -> None:
        watch.expires_us = self._now_us() + self.ttl_ms * 1_000


def _begin(watch: Watch, topic: Partition, start_at: WatchTopic) -> None:
    seq = topic.visible_seq if start_at.tail else start_at.from_seq or 0
    watch.start[topic.name] = (topic.topic_id, seq)


def open_watch(sessions: WatchSessions, exchange: Exchange) -> None:
    request = decode_request(body_of(exchange), WatchRequest)
    lenient = flag(exchange, "lenient", False)
    watch = sessions.open(request, exchange.key, lenient=lenient)
    topics = {}
    for name, (_, cursor) in watch.start.items():
        state = sessions.delivery.backend.space(name, watch.key).topic(name).state()
        topics[name] = {
            "from_seq": cursor,
            "head_seq": state.head_seq,
            "earliest_seq": state.earliest_seq,
        }
    answer(
        exchange,
        200,
        {
            "wid": watch.wid,
            "stream_url": f"/v0/watch/{watch.wid}",
            "session_ttl_ms": sessions.ttl_ms,
            "topics": topics,
            "missing": list(watch.missing),
        },
    )


def open_stream(sessions: WatchSessions, exchange: Exchange) -> None:
    require_event_stream(exchange)
    key = exchange.key
    watch = sessions.get(exchange.parameters[0], key)
    if answers_head(exchange):
        return
    resume = exchange.header(b"last-event-id")
    seen = sse.decode_cursor(resume) if resume else {}
    sessions.delivery.streams.admit(key)
    EventStream(sessions, exchange, watch).begin(seen)


class EventStream(SseStream):
    """One open stream. Sends only while the client takes what was sent before."""

    def __init__(self, sessions: WatchSessions, exchange: Exchange, watch: Watch) -> None:
        super().__init__(sessions.delivery.streams, exchange)
        self._sessions = sessions
        self._delivery = sessions.delivery
        self._watch = watch
        self.heartbeat_us = watch.heartbeat_us
        self._subscriptions = TopicSubscriptions(self._delivery, exchange, self)
        self._options = ReadOptions(
            watch.projection,
            watch.limit,
            watch.bytes_max,
            watch.nodes,
            watch.matcher,
            watch.strong,
        )

    def begin(self, seen: dict[str, int]) -> None:
        watch = self._watch
        watch.streams += 1
        self._open(self._subscriptions.pump_all)
        self._resume(seen)
        if watch.prefixes:
            self._delivery.watch_prefixes(self._subscriptions)
        self._subscriptions.pump_all()

    def _resume(self, seen: dict[str, int]) -> None:
        """Put the client where it says it was, but never beyond what was sent to it.

        What it does not name begins where the watch began: nothing is skipped because it was lost
        on the way.
        """
        watch, backend = self._watch, self._delivery.backend
        for name, (topic_id, begin) in list(watch.start.items()):
            topic = backend.space(name, watch.key).find(name)
            if topic is None or topic.topic_id != topic_id:
                self.send_gone(name)
                continue
            sent = max(watch.sent.get(name, begin), begin)
            self._subscriptions.follow(topic, min(seen.get(name, begin), sent), self._options)
        for prefix in watch.prefixes:
            for topic in backend.engine.topics.list(prefix, None):
                self._subscriptions.appeared(topic)

    # -- what the subscriptions ask

    def send_batch(self, name: str, batch: Batch, *, caught_up: bool) -> None:
        sent = self._watch.sent
        sent[name] = max(sent.get(name, 0), batch.next_from_seq)
        if batch.tombstone is not None:
            gap = msgspec.json.encode(batch.tombstone)
            data = b'{"topic":%b,%b' % (msgspec.json.encode(name), gap[1:])
            self._say(sse.event(b"tombstone", data))
            sent[name] = batch.next_from_seq  # a topic made again counts from its beginning
        if batch.count:
            self._say(self._record_event(name, batch))
        if caught_up:
            data = b'{"topic":%b,"seq":%d,"head_seq":%d}' % (
                msgspec.json.encode(name),
                batch.next_from_seq,
                batch.head_seq,
            )
            self._say(sse.event(b"caught-up", data, self._cursor()))

    def _record_event(self, name: str, batch: Batch) -> bytes:
        alone = len(self._subscriptions) == 1
        if alone and batch.event is not None:
            return batch.event
        if batch.message is None:
            batch.message = sse.data_lines(
                b'{"topic":%b,"records":%b,"from_seq":%d,"to_seq":%d,"head_seq":%d}'
                % (
                    msgspec.json.encode(name),
                    batch.records,
                    batch.from_seq,
                    batch.next_from_seq,
                    batch.head_seq,
                )
            )
        event = sse.frame(b"record", batch.message, self._cursor())
        if alone:
            batch.event = event
        return event

    def send_gone(self, name: str) -> None:
        self._watch.start.pop(name, None)
        self._watch.sent.pop(name, None)
        self._say(sse.json_event(b"topic-deleted", {"topic": name}))

    def adopt(self, topic: Partition) -> bool:
        """A topic made since the watch was opened is followed from its first record."""
        covered = self._watch.covers(topic)
        if covered:
            self._watch.start[topic.name] = (topic.topic_id, 0)
            self._subscriptions.follow(topic, 0, self._options)
        return covered

    def _cursor(self) -> bytes | None:
        """None when there are too many topics for a header: the client keeps an earlier one."""
        cursor = sse.encode_cursor(
            {name: seq for name, seq in self._subscriptions.cursors() if seq}
        )
        return cursor if len(cursor) <= sse.CURSOR_BYTES_MAX else None

    def _let_go(self) -> None:
        self._subscriptions.end()
        self._watch.streams -= 1
        self._sessions.touch(self._watch)
