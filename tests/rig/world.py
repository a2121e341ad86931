"""What the engine must look like, held in plain lists that are easy to believe.

A `World` is copied before every operation; what a crash may leave is one of the copies, by the
rules of the durability classes (I1 to I3).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headwater.config.topic import Discard, TopicSettings, topic_settings
from headwater.core.durability import Durability
from headwater.core.errors import (
    HeadConflictError,
    HeadwaterError,
    TopicFullError,
)
from headwater.model.match import TagMatcher
from tests.property.naive_topic import DELETED, LIVE, LOST, NaiveRecord, NaiveTopic


@dataclass
class WorldRecord(NaiveRecord):
    data: Any = None
    node: str | None = None
    meta: dict[str, Any] | None = None
    logged: bool = True
    """False while only the memory has it."""


@dataclass
class Key:
    first_seq: int
    last_seq: int
    expires_ts: int


@dataclass
class WorldTopic(NaiveTopic):
    epoch: int = 1
    last_ts: int = 0
    keys: dict[str, Key] = field(default_factory=dict)
    kept_head: int = 0
    """The head at the last snapshot: an ephemeral topic keeps at least this."""
    unsure: set[str] = field(default_factory=set)
    """Keys whose writes are gone: whether they are still remembered is nobody's promise."""
    past: list[WorldTopic] = field(default_factory=list, repr=False)
    """What a power loss may take a weak class back to, oldest first; the present is not in it."""

    @property
    def durability(self) -> Durability:
        return self.settings.durability

    def key_each(self, keys: list[str], wall_ms: int) -> None:
        """The last so many records have a key each."""
        expires_ts = wall_ms + self.settings.idempotency_window_ms
        for seq, key in enumerate(keys, self.visible_seq - len(keys) + 1):
            self.keys[key] = Key(seq, seq, expires_ts)

    def frozen(self) -> WorldTopic:
        """As it is now, without a past."""
        twin = WorldTopic(
            self.settings,
            [copy.copy(record) for record in self.records],
            self.epoch,
            self.last_ts,
            dict(self.keys),
            self.kept_head,
            set(self.unsure),
        )
        for record in twin.records:
            record.reasons = set(record.reasons)
        return twin

    def remember(self) -> None:
        """A weak class moves on: what was may come back after a power loss."""
        self.past.append(self.frozen())

    def harden(self) -> None:
        """Everything so far is on stable storage."""
        self.past.clear()

    def possible(self, *, power_lost: bool) -> list[WorldTopic]:
        weak = self.durability in (Durability.DISK, Durability.MEMORY)
        return [self, *(reversed(self.past) if power_lost and weak else ())]


@dataclass
class Expected:
    """What an operation should answer: a value or an error."""

    value: Any = None
    error: type[HeadwaterError] | None = None


@dataclass
class World:
    topics: dict[str, WorldTopic] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)

    def copy(self) -> World:
        twin = World({}, dict(self.epochs))
        for name, topic in self.topics.items():
            twin.topics[name] = topic.frozen()
            twin.topics[name].past = list(topic.past)
        return twin

    def create(self, name: str, settings: dict[str, Any]) -> Expected:
        topic = self.topics.get(name)
        if topic is None:
            epoch = self.epochs.get(name, 0) + 1
            self.topics[name] = WorldTopic(topic_settings(settings), epoch=epoch)
            return Expected(epoch)
        wanted: TopicSettings = topic_settings(settings, topic.settings)
        if wanted != topic.settings:
            topic.settings = wanted
            topic.harden()
            topic.evict(0)
        return Expected(topic.epoch)

    def append(
        self,
        name: str,
        records: list[dict[str, Any]],
        wall_ms: int,
        key: str | None = None,
        expect_head_seq: int | None = None,
    ) -> Expected:
        """Expected value: (first_seq, last_seq, deduped)."""
        topic = self.topics.get(name)
        fresh = topic is None
        if topic is None:
            topic = WorldTopic(topic_settings({}), epoch=self.epochs.get(name, 0) + 1)
        known = None if key is None else topic.keys.get(key)
        if known is not None and wall_ms < known.expires_ts:
            return Expected((known.first_seq, known.last_seq, True))
        if expect_head_seq is not None and expect_head_seq != topic.visible_seq:
            return Expected(error=HeadConflictError)
        sizes = [payload_of(record) for record in records]
        settings = topic.settings
        if settings.discard is Discard.REJECT and (
            (settings.cap_records and len(topic.live) + len(records) > settings.cap_records)
            or (settings.cap_bytes and topic.bytes + sum(sizes) > settings.cap_bytes)
        ):
            return Expected(error=TopicFullError)
        if fresh:
            self.topics[name] = topic
        topic.remember()
        ts = topic.last_ts = max(wall_ms, topic.last_ts)
        first = topic.visible_seq + 1
        for seq, (record, size) in enumerate(zip(records, sizes, strict=True), first):
            tag = record.get("tag")
            topic.records.append(
                WorldRecord(
                    seq,
                    ts,
                    size,
                    None if tag is None else tag.encode(),
                    data=record["data"],
                    node=record.get("node"),
                    meta=record.get("meta"),
                    logged=topic.durability.is_logged,
                )
            )
        last = topic.visible_seq
        if key is not None:
            topic.keys[key] = Key(first, last, wall_ms + settings.idempotency_window_ms)
        topic.evict(0)
        if fresh or topic.durability is Durability.FSYNC:
            topic.harden()
        return Expected((first, last, False))

    def delete(self, name: str, before_seq: int | None, matcher: TagMatcher | None) -> Expected:
        topic = self.topics[name]
        gone = topic.delete(before_seq, matcher, topic.visible_seq)
        topic.harden()
        return Expected(len(gone))

    def drop(self, name: str) -> Expected:
        topic = self.topics.pop(name, None)
        if topic is None:
            return Expected(False)
        self.epochs[name] = topic.epoch
        return Expected(True)

    def snapshot(self) -> None:
        """A full checkpoint: everything is in segments, heads are written down."""
        for topic in self.topics.values():
            topic.harden()
            topic.kept_head = topic.visible_seq
            if topic.durability.is_logged:
                log_all(topic)

    def stopped(self) -> None:
        """A restart after a clean stop: the ephemeral records are gone, the rest is there."""
        for topic in self.topics.values():
            lose_unlogged(topic)


def payload_of(record: dict[str, Any]) -> int:
    """Bytes of node, tag, data and meta as they lie in a frame."""
    size = len(msgspec.json.encode(record["data"]))
    for name in ("tag", "node"):
        size += len((record.get(name) or "").encode())
    if record.get("meta") is not None:
        size += len(msgspec.json.encode(record["meta"])) + META_LENGTH_BYTES
    return size


META_LENGTH_BYTES: Final = 4


def is_unlogged(record: NaiveRecord) -> bool:
    return isinstance(record, WorldRecord) and not record.logged


def log_all(topic: WorldTopic) -> None:
    """Everything that was in memory only is in segments now."""
    for record in topic.records:
        if isinstance(record, WorldRecord):
            record.logged = True


def lose_unlogged(topic: WorldTopic) -> None:
    """A restart: what was in memory only is gone, deleted or not, and readers are told."""
    for record in topic.records:
        if is_unlogged(record):
            record.fate = LOST
            record.reasons = {"lost_tail"}
    if not topic.durability.is_logged:
        topic.unsure.update(topic.keys)
        topic.keys.clear()
    log_all(topic)


def lose_tail(topic: WorldTopic, head_seq: int) -> None:
    """Seqs up to the head that have no record, and readers are told."""
    for seq in range(topic.visible_seq + 1, head_seq + 1):
        lost = WorldRecord(seq, topic.last_ts, 0, None, LOST)
        lost.reasons = {"lost_tail"}
        topic.records.append(lost)


__all__ = ["DELETED", "LIVE", "LOST", "Expected", "World", "WorldTopic", "lose_unlogged"]
