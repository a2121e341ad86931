"""Single writes that came in one turn of the loop, to one topic, are one append.

Fifty connections that write a record each ask fifty questions and get fifty answers. In between
they are one run of seqs, one encoding, one ticket and one publication: what is done for each of
them alone is to read its body and to print its answer. A write that asks for more than its record
to be stored (a key, an expected head, a setting) goes by itself, behind those that came before it.
See docs/decisions/0022-single-writes-of-one-turn-are-one-append.md.

Keeps I2, I15.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.config.topic import Discard
from headwater.core.errors import HeadwaterError, TopicNotFoundError
from headwater.core.units import KIB
from headwater.engine.input import EncodedRecords
from headwater.engine.pending import Appended, Pending, Write
from headwater.server.body import body_of
from headwater.server.exchange import Exchange
from headwater.server.writing import encode_request, write_records, write_request
from headwater.wire.answers import single_write_answer
from headwater.wire.requests import WriteRequest, decode_request

if TYPE_CHECKING:
    from headwater.engine.topic import Topic
    from headwater.server.app import App

BODY_BYTES_MAX: Final = 4 * KIB
"""For a longer record, what is done once for a ticket matters little beside its bytes."""
MEMBERS_MAX: Final = 512

Member = tuple[Exchange, WriteRequest]


def take_write(app: App, exchange: Exchange) -> None:
    """POST /v0/topics/:topic."""
    if not (_asks_for_no_more(exchange) and app.gathering.add(exchange)):
        app.gathering.flush()  # what came before it on its connection stays before it
        write_records(app, exchange)


class _Group:
    """Writes to one topic, and the records they bring: one each, in the same order."""

    __slots__ = ("came", "members", "name", "records", "topic")

    def __init__(self, name: str, topic: Topic) -> None:
        self.name = name
        self.topic = topic
        self.came: list[Exchange] = []
        self.begin()

    def begin(self) -> None:
        self.members: list[Member] = []
        self.records = EncodedRecords([], [], [], [])

    def add(self, exchange: Exchange, request: WriteRequest, encoded: EncodedRecords) -> None:
        records = self.records
        records.nodes += encoded.nodes
        records.tags += encoded.tags
        records.datas += encoded.datas
        records.flags += encoded.flags
        records.size += encoded.size
        self.members.append((exchange, request))


class Gathering:
    """Filled by the connections, emptied when the loop has read from all that had something."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._groups: dict[str, _Group] = {}

    def add(self, exchange: Exchange) -> bool:
        """Take a write along; False when its topic has to look at each by itself."""
        name = exchange.head.parameters[0]
        group = self._groups.get(name)
        if group is None:
            topic = self._app.engine.find(name)
            if topic is None or not _takes_groups(topic):
                return False
            if not self._groups:
                self._app.loop.call_soon(self.flush)
            group = self._groups[name] = _Group(name, topic)
        group.came.append(exchange)
        return True

    def flush(self) -> None:
        if self._groups:
            groups, self._groups = self._groups, {}
            for group in groups.values():
                self._read(group)
                self._send(group)

    def _read(self, group: _Group) -> None:
        app = self._app
        take_in = partial(self._take_in, group)
        for exchange in group.came:
            app.attempt(exchange, take_in)

    def _take_in(self, group: _Group, app: App, exchange: Exchange) -> None:
        request = decode_request(body_of(exchange), WriteRequest)
        if _is_single(request):
            encoded = encode_request(request, app.settings.limits.record_bytes)
            if encoded.deliver_at is None:
                usage = exchange.head.usage
                assert usage is not None
                usage.begin()
                group.add(exchange, request, encoded)
                if len(group.members) >= MEMBERS_MAX:
                    self._send(group)
                return
        self._send(group)
        write_request(app, exchange, request)

    def _send(self, group: _Group) -> None:
        members, records = group.members, group.records
        if not members:
            return
        group.begin()
        records.writers = len(members)
        engine = self._app.engine
        try:
            if engine.find(group.name) is not group.topic:
                raise TopicNotFoundError("it was dropped since they came")
            write = engine.append(group.name, records)
        except HeadwaterError:
            # Nothing of it was taken. One by one, each gets the answer that is its own.
            for exchange, request in members:
                _end(exchange)
                self._app.attempt(exchange, partial(write_request, request=request))
            return
        answer = partial(self._answer, members)
        if write.done:
            answer(write)
        else:
            write.on_done = answer

    def _answer(self, members: list[Member], write: Pending[Appended]) -> None:
        assert isinstance(write, Write)
        error, broken = write.error, None
        now_us, sync_us, throttle_us = self._app.now_us(), write.sync_us, write.throttle_us
        head_seq = 0 if write.result is None else write.result.head_seq
        for seq, (exchange, _) in enumerate(members, write.first_seq):
            _end(exchange)
            try:
                if error is not None:
                    exchange.fail(error)
                    continue
                total_us = now_us - exchange.started_us
                body = single_write_answer(seq, head_seq, total_us, sync_us, throttle_us)
                exchange.answer_json(200, body)
            except Exception as problem:  # whoever is behind it is answered all the same (I15)
                broken = broken or problem
        if broken is not None:
            raise broken


def _asks_for_no_more(exchange: Exchange) -> bool:
    """Nothing in its head asks for more than to store a record, and it is not long."""
    head = exchange.head
    return (
        len(exchange.body) <= BODY_BYTES_MAX
        and head.is_plain_json
        and not head.query_bytes
        and b"idempotency-key" not in head.headers
    )


def _is_single(request: WriteRequest) -> bool:
    """One record, and nothing else that has to be looked at for this write alone."""
    return (
        len(request.records) == 1
        and request.idempotency_key is None
        and request.expect_head_seq is None
        and request.config is None
        and not request.disable_backpressure
    )


def _takes_groups(topic: Topic) -> bool:
    """One that is there for good, and does not look at each write to find room for it."""
    return (
        topic.loaded
        and not topic.is_partition
        and topic.creation is None
        and topic.log.settings.discard is not Discard.REJECT
    )


def _end(exchange: Exchange) -> None:
    usage = exchange.head.usage
    assert usage is not None
    usage.end()
