"""Every transition is also a record of a topic, so streams, Kafka clients, queues and Spark can
follow machines without anything new.

Exactly once, across crashes: the feeder reads where to go on from the topic itself, whose last
record of the feeder holds its `wal_offset`. A client that writes copies of those records, under
the feeder's name, is beyond that. A transition goes there once it is synced in the log, so the
topic never has one that a crash takes back; and compaction keeps what is not in the topic yet, by
a retention hold. When retention has emptied the topic, FED holds how far it was.

What cannot be read of the log, because it is damaged or was deleted while no topic was fed, stands
in the topic as a gap (I9): a record tagged `$gap` with the first and last offset and the reason. It
counts for where to go on as a transition does, as long as nothing can be read in its range.

What was committed since the last round is still in memory, and is taken from there. The log is read
for what is not: after a start, after a failure, and when more came than is worth remembering.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Final, NamedTuple

import msgspec

from headwater.api.machine_requests import WatchFilter
from headwater.core.errors import HeadwaterError, TopicNotFoundError
from headwater.core.limits import BATCH_RECORDS_MAX, RECORD_BYTES_MAX
from headwater.core.units import MIB
from headwater.disk import Disk
from headwater.engine.drivers import BlockingDriver
from headwater.engine.machines.log_reader import LogGap
from headwater.engine.machines.positions import TRANSITIONS, fed_file
from headwater.engine.machines.store import MachineStore
from headwater.engine.machines.tables import EntryEffect
from headwater.engine.machines.watchers import CatchUpPlan, TransitionEvent
from headwater.engine.maintenance.housekeeping import MaintenanceThread
from headwater.engine.topics.operations import (
    append_encoded_operation,
    create_operation,
    diff_operation,
    diff_request,
    state_operation,
)
from headwater.engine.topics.protocols import TopicEngine
from headwater.engine.topics.record_encoding import EncodedRecords
from headwater.format.frame import FrameFlag
from headwater.format.machines.bodies import NO_PAYLOAD, ApplyEventEntry
from headwater.format.machines.names import global_offset
from headwater.model.retention import HoldOwner

NODE: Final = "machines"
"""The writer of a record: the feeder knows its own records by it."""
_NODE_BYTES: Final = NODE.encode()
_FLAGS: Final = int(FrameFlag.HAS_NODE | FrameFlag.HAS_TAG)
GAP_TAG: Final = b"$gap"
"""No machine can be called that."""
LOG_BEGIN: Final = global_offset(1, 0)
SCAN_BACK_RECORDS: Final = 256
BATCH_BYTES: Final = 4 * MIB
SAVE_EVERY_EVENTS: Final = 100_000
SAVE_IDLE_US: Final = 1_000_000
"""Nothing came for so long: the topic may be emptied now, and then only FED has the position."""
FRESH_BYTES_MAX: Final = 16 * MIB
"""Of log, whose transitions are remembered until the next round."""
_EVERYTHING: Final = WatchFilter()
_log: Final = logging.getLogger("headwater.machines")


class _Position(msgspec.Struct):
    """By what the feeder knows its own record when it reads it again."""

    instance_id: str
    event: str
    wal_offset: int


class _GapPosition(msgspec.Struct, tag_field="type", tag="gap"):
    """By what the feeder knows its own gap when it reads it again."""

    first_offset: int
    last_offset: int


class _GapRecord(msgspec.Struct, tag_field="type", tag="gap"):
    """A record of the topic: if there were transitions in this range of the log, they are missing
    here."""

    reason: str
    first_offset: int
    first_offset_text: str
    last_offset: int
    last_offset_text: str
    at: int


class _TransitionRecord(msgspec.Struct, gc=False):
    """A record of the topic."""

    instance_id: str
    machine: str
    version: int
    event: str
    from_state: str
    to_state: str
    at: int
    event_id: str | None
    wal_offset: int
    wal_offset_text: str
    payload: msgspec.Raw | None
    payload_omitted: bool | msgspec.UnsetType = msgspec.UNSET


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Position).decode
_decode_gap: Final = msgspec.json.Decoder(_GapPosition).decode


_Record = tuple[int, bytes, bytes]
"""A transition or a gap as a record: where in the log it ends, its tag, its JSON."""


class _Fresh(NamedTuple):
    """What a round has to do, as it was when the round began."""

    since: int | None
    """All transitions from here on to `end` are in `moved`; None when they are not."""
    moved: Sequence[tuple[int, ApplyEventEntry]]
    end: int
    plan: CatchUpPlan
    """Reads the same from the log."""


class TransitionFeeder:
    def __init__(
        self,
        topics: TopicEngine,
        store: MachineStore,
        disk: Disk,
        directory: PurePath,
        *,
        make_maintenance: type[MaintenanceThread] = MaintenanceThread,
    ) -> None:
        topic = store.settings.transitions_topic
        assert topic is not None, "there is no topic to feed"
        self._topics = topics
        self._drive = BlockingDriver(topics.core).drive
        self._store = store
        self.topic = topic
        self._file = fed_file(disk, directory)
        self._next: int | None = None
        """Transitions before this offset are in the topic; None: read it from the topic."""
        self._unsaved = 0
        self.gaps = 0
        """Ranges of the log that could not be copied, since the start."""
        self.last_gap: LogGap | None = None
        self._saving = threading.Lock()
        self._saved = store.position_within(self._file.read())
        """The position in FED; None: it holds none."""
        self._hold = store.holds.take(TRANSITIONS, HoldOwner.TRANSITIONS_TOPIC, self._saved)
        self._hold.save = self._save
        self._moved: list[tuple[int, ApplyEventEntry]] = []
        self._moved_since: int | None = None
        clock = self._clock = topics.core.clock
        self._moved_us = clock.monotonic_us()
        self._maintenance_thread = make_maintenance(
            clock, store.settings.feed_interval_ms, self.round
        )
        store.listeners.append(self._on_committed)

    def start(self) -> None:
        self._maintenance_thread.start()

    @property
    def last_error(self) -> Exception | None:
        """Why the last round failed; the next tries again."""
        return self._maintenance_thread.error

    @property
    def position(self) -> int:
        """Every transition before this offset is in the topic."""
        return self._next or self._saved or 0

    def round(self) -> None:
        """Take what is new to the topic. Not for the owner's own thread."""
        end = self._store.committed_offset
        if self._next is not None and self._next >= end:
            if self._clock.monotonic_us() - self._moved_us >= SAVE_IDLE_US:
                self._save()
            return
        try:
            self._publish(self._where_to_begin())
        except BaseException:
            self._next = None  # whether the last batch is in the topic is for the topic to say
            raise

    def stop(self) -> None:
        """What is not in the topic yet stays in the log until the next start."""
        self._maintenance_thread.stop()
        self._store.listeners.remove(self._on_committed)
        try:
            self._save()
        except (HeadwaterError, OSError) as error:
            # A full disk is no reason not to stop: the log is kept from where FED is.
            _log.warning("how far the topic %s is cannot be saved: %s", self.topic, error)

    def _on_committed(self, effects: Sequence[EntryEffect]) -> None:
        """These were committed. As the owner."""
        if self._moved_since is None:
            return
        if effects[-1].offset - self._moved_since > FRESH_BYTES_MAX:
            self._moved, self._moved_since = [], None
            return
        self._moved += [
            (effect.offset, effect.body)
            for effect in effects
            if type(effect.body) is ApplyEventEntry
        ]

    def _take(self, start: int) -> _Fresh:
        """As the owner: nothing is committed meanwhile."""
        end = self._store.committed_offset
        plan = self._store.catch_up(_EVERYTHING, start)
        fresh = _Fresh(self._moved_since, self._moved, end, plan)
        self._moved, self._moved_since = [], end
        return fresh

    def _publish(self, start: int) -> None:
        fresh = self._topics.core.owner.call(lambda: self._take(start))
        self._store.sync()
        if fresh.since is not None and fresh.since <= start:
            self._append([_of_body(*each) for each in fresh.moved if each[0] >= start])
        else:
            plan: CatchUpPlan | None = fresh.plan
            while plan is not None:
                part = plan.read()
                self._append(map(self._of_read, part.in_order()))
                plan = part.following
        self._advance(fresh.end)

    def _append(self, moved: Iterable[_Record]) -> None:
        datas: list[bytes] = []
        tags: list[bytes] = []
        size = last = 0
        for offset, tag, data in moved:
            if len(datas) == BATCH_RECORDS_MAX or (datas and size + len(data) > BATCH_BYTES):
                self._write(datas, tags)
                datas, tags, size = [], [], 0
            datas.append(data)
            tags.append(tag)
            size += len(data)
            last = offset
        if datas:
            self._write(datas, tags)
            self._advance(last + 1)

    def _write(self, datas: list[bytes], tags: list[bytes]) -> None:
        count = len(datas)
        size = sum(map(len, datas)) + sum(map(len, tags)) + count * len(_NODE_BYTES)
        records = EncodedRecords([_NODE_BYTES] * count, tags, datas, [_FLAGS] * count, size)
        self._drive(
            append_encoded_operation(
                self._topics, self.topic, records, create=True, disable_backpressure=True
            )
        )
        self._unsaved += count

    def _advance(self, offset: int) -> None:
        self._next = offset
        self._moved_us = self._clock.monotonic_us()
        if self._unsaved >= SAVE_EVERY_EVENTS:
            self._save()

    def _where_to_begin(self) -> int:
        if self._next is None:
            self._next = max(self._saved or 0, self._last_in_topic() + 1, LOG_BEGIN)
        return self._next

    def _last_in_topic(self) -> int:
        """The offset of our newest record; 0 when there is none."""
        try:
            state = self._drive(state_operation(self._topics, self.topic))
        except TopicNotFoundError:
            # There before the first transition: who follows from the start finds a topic.
            self._drive(create_operation(self._topics, self.topic, {}))
            return 0
        upto = state.head_seq
        while upto >= state.earliest_seq and upto > 0:
            since = max(upto - SCAN_BACK_RECORDS, state.earliest_seq - 1, 0)
            request = diff_request(since, limit=upto - since)
            page = self._drive(diff_operation(self._topics, self.topic, request))
            for record in reversed(page.records):
                if record.node == NODE and (offset := self._offset_of(record.data_json)):
                    return offset
            upto = since
        return 0

    def _offset_of(self, data: bytes) -> int:
        """The offset in the log that a record is from; 0 when it is from none. Clients may write to
        the topic, also under the feeder's name."""
        try:
            written = _decode(data)
        except msgspec.MsgspecError:
            return self._end_of_gap(data)
        offset = written.wal_offset
        if not 0 < offset < self._store.committed_offset:
            return 0
        owner = self._topics.core.owner
        plan = replace(owner.call(lambda: self._store.catch_up(_EVERYTHING, offset)), limit=1)
        caught_up = plan.read()
        if caught_up.gaps and caught_up.gaps[0].offset == offset:
            return offset  # neither it nor anything before it can be read again
        same = [(each.wal_offset, each.instance_id, each.event) for each in caught_up.events]
        return offset if same == [(offset, written.instance_id, written.event)] else 0

    def _end_of_gap(self, data: bytes) -> int:
        """Where a gap ends; 0 when the record is none, or names a range that can be read."""
        try:
            gap = _decode_gap(data)
        except msgspec.MsgspecError:
            return 0
        first, last = gap.first_offset, gap.last_offset
        if not 0 < first <= last < self._store.committed_offset:
            return 0
        owner = self._topics.core.owner
        readable = owner.call(lambda: self._store.read_wal(first, 1)).read().entries
        return 0 if readable and readable[0].offset <= last else last

    def _of_read(self, read: TransitionEvent | LogGap) -> _Record:
        if not isinstance(read, LogGap):
            return _of_event(read)
        self._note_gap(read)
        first, last = read.offset, read.resume - 1
        now_ms = self._clock.wall_ms()
        gap = _GapRecord(read.reason.value, first, str(first), last, str(last), now_ms)
        return last, GAP_TAG, _encode(gap)

    def _note_gap(self, gap: LogGap) -> None:
        """Logged once, also when its record could not be written and is tried again."""
        if self.last_gap is not None and gap.resume <= self.last_gap.resume:
            return
        self.gaps += 1
        self.last_gap = gap
        _log.warning(
            "transitions at offsets %s to %s of the machines' log are %s and cannot be copied to "
            "the topic %s: a gap stands there",
            gap.offset, gap.resume - 1, gap.reason.value, self.topic,
        )  # fmt: skip

    def _save(self) -> None:
        """Have on disk how far the topic is; only then may the log before it be deleted. A topic
        that retention empties later does not show it."""
        with self._saving:  # the feeder's thread does, and that of a compaction
            position = self._next
            if position is None or position == self._saved:
                return
            self._unsaved = 0
            self._file.write(position)
            self._saved = position
            self._store.holds.move(self._hold, position)


def _of_event(event: TransitionEvent) -> _Record:
    payload = None if event.payload is None else msgspec.Raw(event.payload)
    return _record(event.wal_offset, event, payload)


def _of_body(offset: int, body: ApplyEventEntry) -> _Record:
    return _record(offset, body, None if body.payload is NO_PAYLOAD else body.payload)


def _record(
    offset: int, moved: ApplyEventEntry | TransitionEvent, payload: msgspec.Raw | None
) -> _Record:
    transition = _TransitionRecord(
        moved.instance_id, moved.machine, moved.version, moved.event, moved.from_state,
        moved.to_state, moved.at, moved.event_id, offset, str(offset), payload,
    )  # fmt: skip
    data = _encode(transition)
    if len(data) > RECORD_BYTES_MAX - 64 * 1024:  # a record may not be larger; the log has it all
        transition.payload, transition.payload_omitted = None, True
        data = _encode(transition)
    return offset, moved.machine.encode(), data
