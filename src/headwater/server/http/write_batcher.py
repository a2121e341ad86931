"""Single writes that came in one turn of the loop, to one topic, are one append.

Fifty connections that write a record each ask fifty questions and get fifty answers. In between
they are one run of seqs, one encoding, one ticket and one publication: what is done for each of
them alone is to read its body and to print its answer. A write that asks for more than its record
to be stored (an expected head, a setting, the answer of a key that was used before) goes by itself,
behind those that came before it.
See docs/decisions/0022-single-writes-of-one-turn-are-one-append.md.

Keeps I2, I15.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.config.server import LimitSettings
from headwater.config.topic import Discard
from headwater.core import limits
from headwater.core.errors import HeadwaterError, TopicNotFoundError
from headwater.core.results import Appended
from headwater.core.units import KIB
from headwater.engine.pending import Pending
from headwater.engine.topics.record_encoding import EncodedRecords, checked_key
from headwater.engine.topics.write import Write
from headwater.format.frame import FrameFlag
from headwater.native import compiled
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange
from headwater.server.http.request_body import body_of
from headwater.server.http.shared_response import (
    Direct,
    SharedResponse,
    can_send_directly,
    send_directly,
)
from headwater.server.http.write_handler import (
    encode_request,
    plain_record,
    write_records,
    write_request,
)
from headwater.wire.requests import WriteRequest, decode_request

if TYPE_CHECKING:
    from headwater.engine.engine import Engine
    from headwater.engine.state.topic import Topic
    from headwater.server.http.request_head import Head

_native: Final = compiled("bodies")
_HAS_TAG: Final = int(FrameFlag.HAS_TAG)

BODY_BYTES_MAX: Final = 4 * KIB
"""For a longer record, what is done once for a ticket matters little beside its bytes."""
MEMBERS_MAX: Final = 512


def take_write(batcher: WriteBatcher, exchange: Exchange) -> None:
    """POST /v0/topics/:topic."""
    if not (exchange.head.is_plain_write and batcher.add(exchange)):
        batcher.flush()  # what came before it on its connection stays before it
        batcher.write_alone(exchange)


class _Group:
    """Writes to one topic, and the records they bring: one each, in the same order."""

    __slots__ = ("came", "keys", "members", "name", "records", "topic")

    def __init__(self, name: str, topic: Topic) -> None:
        self.name = name
        self.topic = topic
        self.came: list[Exchange] = []
        self.begin()

    def begin(self) -> None:
        self.members: list[Exchange] = []
        self.records = EncodedRecords([], [], [], [])
        self.keys: set[bytes] = set()

    def add_plain(self, exchange: Exchange, data: bytes) -> None:
        exchange.usage.begin()
        records = self.records
        records.nodes.append(b"")
        records.tags.append(b"")
        records.datas.append(data)
        records.flags.append(0)
        records.size += len(data)
        self.members.append(exchange)

    def add_key(self, key: bytes) -> None:
        """It is that of the member that came last."""
        if self.records.keys is None:
            self.records.keys = {}
        self.records.keys[len(self.members) - 1] = key
        self.keys.add(key)

    def add(self, exchange: Exchange, encoded: EncodedRecords) -> None:
        exchange.usage.begin()
        records = self.records
        records.nodes += encoded.nodes
        records.tags += encoded.tags
        records.datas += encoded.datas
        records.flags += encoded.flags
        records.size += encoded.size
        self.members.append(exchange)


class WriteBatcher:
    """Filled by the connections, emptied when the loop has read from all that had something."""

    def __init__(
        self, backend: Backend, limits: LimitSettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._backend = backend
        self._record_bytes_max = limits.record_bytes
        self._loop = loop
        self.engine: Engine | None = None
        """None until there is one to write to."""
        self._groups: dict[str, _Group] = {}

    def add(self, exchange: Exchange) -> bool:
        """Take a write along; False when its topic has to check each by itself."""
        name = exchange.head.parameters[0]
        group = self._groups.get(name)
        if len(exchange.body) > BODY_BYTES_MAX or self.engine is None:
            return False
        if group is None:
            topic = self.engine.find(name)
            if topic is None or not _takes_groups(topic):
                return False
            if not self._groups:
                self._loop.call_soon(self.flush)
            group = self._groups[name] = _Group(name, topic)
        group.came.append(exchange)
        return True

    def write_alone(self, exchange: Exchange) -> None:
        write_records(self._backend, exchange)

    def flush(self) -> None:
        if self._groups:
            groups, self._groups = self._groups, {}
            for group in groups.values():
                if not self._read_together(group):
                    self._read(group)
                self._send(group)

    def _read_together(self, group: _Group) -> bool:
        """All at once, where each brings a payload, maybe a tag, and nothing else. False when that
        is not so, or not certain: nothing was done."""
        came = group.came
        if _native is None or len(came) > MEMBERS_MAX:
            return False
        usage = came[0].usage
        if not usage.has_room(len(came)):
            return False
        for exchange in came:
            if exchange.head.usage is not usage:
                return False  # writers with several keys
        bodies = [exchange.body for exchange in came]
        plain = _native.plain_records(bodies, self._record_bytes_max, limits.TAG_BYTES_MAX)
        if plain is None:
            return False
        datas, tags = plain
        flags = [_HAS_TAG if tag else 0 for tag in tags]
        size = sum(map(len, datas)) + sum(map(len, tags))
        group.records = EncodedRecords([b""] * len(datas), tags, datas, flags, size)
        group.members = came
        usage.in_flight += len(came)
        return True

    def _read(self, group: _Group) -> None:
        bytes_max = self._record_bytes_max
        for exchange in group.came:
            try:
                request = decode_request(body_of(exchange), WriteRequest)
                data = plain_record(request)
                if data is None or len(data) > bytes_max:
                    self._take_in(group, exchange, request)
                    continue
                group.add_plain(exchange, data)
                if len(group.members) >= MEMBERS_MAX:
                    self._send(group)
            except HeadwaterError as error:
                exchange.fail(error)
            except Exception as error:
                exchange.broken(error)

    def _take_in(self, group: _Group, exchange: Exchange, request: WriteRequest) -> None:
        """One that brings more than a payload."""
        key = None if request.idempotency_key is None else checked_key(request.idempotency_key)
        goes_along = _is_single(request) and not (key is not None and self._is_known(group, key))
        if not goes_along or request.records[0].deliver_at is not None:
            self._send(group)
            write_request(self._backend, exchange, request)
            return
        encoded = encode_request(request, self._record_bytes_max)
        group.add(exchange, encoded)
        if key is not None:
            group.add_key(key)
        if len(group.members) >= MEMBERS_MAX:
            self._send(group)

    def _is_known(self, group: _Group, key: bytes) -> bool:
        """A write with this key was made before, or is among these: it gets the same answer."""
        engine = self.engine
        assert engine is not None
        now_ms = engine.core.clock.wall_ms()
        return key in group.keys or group.topic.keys.lookup(key, now_ms) is not None

    def _send(self, group: _Group) -> None:
        members, records = group.members, group.records
        if not members:
            return
        group.begin()
        records.writers = len(members)
        engine = self.engine
        assert engine is not None
        try:
            if engine.find(group.name) is not group.topic:
                raise TopicNotFoundError("it was dropped since they came")
            write = engine.append(group.name, records)
        except HeadwaterError:
            # Nothing of it was taken. One by one, each gets the answer that is its own.
            for exchange in members:
                exchange.usage.end()
                exchange.attempt(self.write_alone)
            return
        except Exception as error:  # a mistake of ours: every request gets an answer (I15)
            for exchange in members:
                exchange.usage.end()
                exchange.broken(error)
            return
        answer = partial(self._answer, members)
        if write.done:
            answer(write)
        else:
            write.on_done = answer

    def _answer(self, members: list[Exchange], write: Pending[Appended]) -> None:
        assert isinstance(write, Write)
        error, broken = write.error, None
        endpoint = members[0].connection.endpoint
        response = SharedResponse.of(write, endpoint.now_us(), endpoint.request_prefix)
        direct: list[Direct] = []
        for seq, exchange in enumerate(members, write.first_seq):
            exchange.usage.in_flight -= 1
            try:
                if error is not None:
                    exchange.fail(error)
                elif can_send_directly and exchange.connection.takes_direct_answer:
                    direct.append((exchange, seq))
                else:
                    exchange.answer_whole(response.reply(exchange, seq))
            except Exception as problem:  # the requests behind it are answered all the same (I15)
                broken = broken or problem
        send_directly(direct, response)
        if broken is not None:
            raise broken


def has_plain_head(head: Head) -> bool:
    """Nothing in the head of this write asks for more than to store what it brings."""
    return (
        head.is_plain_json
        and head.keep_alive
        and not head.query_bytes
        and b"idempotency-key" not in head.headers
    )


def _is_single(request: WriteRequest) -> bool:
    """One record, and nothing else that has to be checked for this write alone."""
    return (
        len(request.records) == 1
        and request.expect_head_seq is None
        and request.return_seqs is None
        and request.config is None
        and not request.disable_backpressure
    )


def _takes_groups(topic: Topic) -> bool:
    """One that is there for good, and does not check each write for room."""
    return (
        topic.loaded
        and not topic.is_partition
        and topic.creation is None
        and topic.log.settings.discard is not Discard.REJECT
    )
