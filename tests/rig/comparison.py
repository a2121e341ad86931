"""Holding an engine against a world: on the run, and after a crash against several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headwater.core.durability import Durability
from headwater.core.results import TopicState
from headwater.engine.database import Database
from headwater.testing import CrashKind, FakeDisk
from tests.property.naive_topic import LIVE, LOST
from tests.rig.invariants import check_topic
from tests.rig.world import Key, World, WorldTopic, is_unlogged, log_all, lose_tail, lose_unlogged

Event = tuple[Any, ...]


class Mismatch(AssertionError):
    """The engine is not what this world says."""


def read_events(db: Database, name: str, from_seq: int = 0, limit: int = 50) -> Iterator[Event]:
    """Everything a reader meets who follows its cursor to the end."""
    cursor = from_seq
    for _ in range(10_000):
        diff = db.diff(name, cursor, limit=limit)
        if diff.tombstone is not None:
            yield "tombstone", diff.tombstone.gap_from, diff.tombstone.gap_to
        for record in diff.records:
            yield record.seq, record.ts, record.data, record.tag, record.node, record.meta
        beyond = cursor > diff.head_seq  # of an earlier life of the topic: sent back to its start
        assert diff.next_from_seq > cursor or diff.caught_up or beyond, "the cursor stands still"
        cursor = diff.next_from_seq
        if diff.caught_up:
            return
    raise AssertionError("a reader that never catches up")


def world_events(topic: WorldTopic, from_seq: int = 0) -> Iterator[Event]:
    records = {record.seq: record for record in topic.records}
    for kind, first, last, _ in topic.events(from_seq, topic.visible_seq):
        if kind == "tombstone":
            yield kind, first, last
            continue
        record: Any = records[first]
        tag = None if record.tag is None else record.tag.decode()
        yield record.seq, record.ts, record.data, tag, record.node, record.meta


@dataclass
class Judge:
    db: Database
    wall_max_ms: int

    def check(self, world: World) -> None:
        states = {state.topic: state for state in self.db.topics()}
        _same("topics", set(states), set(world.topics))
        for name, topic in world.topics.items():
            self._check_topic(name, states[name], topic)

    def _check_topic(self, name: str, state: TopicState, topic: WorldTopic) -> None:
        if topic.settings.ttl_ms:
            self._follow_age(name, topic)
            state = self.db.state(name)
        _same(f"{name}: numbers", numbers_of(state), numbers_in(topic))
        _same(f"{name}: events", list(read_events(self.db, name)), list(world_events(topic)))
        known = self.db.engine.topic(name)
        check_topic(known.log)
        _same(f"{name}: numbers", numbers_of(self.db.state(name)), numbers_in(topic))
        assert known.tail_bytes >= 0, name
        now = self.db.engine.core.clock.wall_ms()
        for key, entry in topic.keys.items():
            if max(now, self.wall_max_ms) < entry.expires_ts and not is_ahead(entry, topic, now):
                found = known.keys.lookup(key.encode(), now)
                seqs = None if found is None else (found.first_seq, found.last_seq)
                _same(f"{name}: key {key}", seqs, (entry.first_seq, entry.last_seq))

    def follow_ages(self, world: World) -> None:
        """Let the world lose to age what the engine lost to age, if it was old enough."""
        for name, topic in world.topics.items():
            if self.db.engine.find(name) is not None and topic.settings.ttl_ms:
                self._follow_age(name, topic)

    def _follow_age(self, name: str, topic: WorldTopic) -> None:
        self.db.diff(name, 0, limit=1)  # reading lets go of what is too old
        floor = self.db.state(name).evict_floor
        while topic.live and topic.live[0].seq < floor:
            record = topic.live[0]
            if record.ts >= self.wall_max_ms - topic.settings.ttl_ms:
                raise Mismatch(f"{name}: seq {record.seq} was evicted before its time")
            record.fate = LOST
            record.reasons = {"ttl"}

    def choose(self, worlds: list[World], label: str) -> World:
        """The world a running engine shows, after an operation that may or may not have failed."""
        reasons = []
        for world in worlds:
            try:
                self.check(world)
            except Mismatch as mismatch:
                reasons.append(str(mismatch))
            else:
                return world
        raise Mismatch(f"{label}:\n" + "\n".join(reasons))

    # After a crash.

    def recognise(self, worlds: list[World], state: FakeDisk) -> World:
        """The world that is there: each topic by itself may be what it was before or after."""
        return self.identify(worlds, state.crash_kind is not CrashKind.KILL, state.label)

    def identify(self, worlds: list[World], power_lost: bool, label: str) -> World:
        found = World()
        last = worlds[-1]
        names = {state_.topic for state_ in self.db.topics()}
        for name in names | {name for world in worlds for name in world.topics}:
            options = [world.topics.get(name) for world in worlds]
            if name not in names:
                if None not in options:
                    raise Mismatch(f"{label}: topic {name} is gone")
                continue
            found.topics[name] = self._recognise(name, options, power_lost, label)
        found.epochs = dict(last.epochs)
        for world in worlds:
            for name, epoch in world.epochs.items():
                found.epochs[name] = min(found.epochs.get(name, epoch), epoch)
        for name, topic in found.topics.items():
            if topic.epoch > 1:
                found.epochs[name] = topic.epoch - 1
            else:
                found.epochs.pop(name, None)
        for name in found.epochs.keys() - found.topics.keys():
            found.epochs[name] = self.db.engine.core.registry.epoch_of(name)
        return found

    def _recognise(
        self, name: str, options: list[WorldTopic | None], power_lost: bool, label: str
    ) -> WorldTopic:
        reasons = []
        there = [option for option in options if option is not None]
        acked_head = 0 if None in options else min(option.visible_seq for option in there)
        for option in reversed(there):
            for candidate in self._candidates(option, power_lost=power_lost):
                try:
                    self._adopt(name, candidate, acked_head, option)
                    self._check_topic(name, self.db.state(name), candidate)
                except Mismatch as mismatch:
                    reasons.append(str(mismatch))
                else:
                    return candidate
        raise Mismatch(f"{label}: {name} is nothing it could be:\n" + "\n".join(reasons))

    def _candidates(self, option: WorldTopic, *, power_lost: bool) -> Iterator[WorldTopic]:
        for past in option.possible(power_lost=power_lost):
            yield past.frozen()
            if past.durability.is_logged and any(map(is_unlogged, past.records)):
                absorbed = past.frozen()  # what was ephemeral once may be in segments already
                log_all(absorbed)
                yield absorbed
            if past.settings.ttl_ms and self.db.engine.core.clock.wall_ms() < self.wall_max_ms:
                # The clock was set back. Floors that age alone has moved are written down within
                # a second; until then they are what the clock says.
                younger = past.frozen()
                for record in younger.records:
                    if record.reasons == {"ttl"}:
                        record.fate, record.reasons = LIVE, set()
                younger.evict(0)
                yield younger

    def _adopt(self, name: str, topic: WorldTopic, acked_head: int, present: WorldTopic) -> None:
        """Let the world lose what its class may lose, as far as the engine says so."""
        head = self.db.state(name).head_seq
        if not topic.durability.is_logged:
            logged = [record.seq for record in topic.records if not is_unlogged(record)]
            if not max(topic.kept_head, *logged, 0) <= head <= topic.visible_seq:
                raise Mismatch(f"{name}: ephemeral head {head}")
            del topic.records[head:]
        elif topic.durability is Durability.DISK:
            if head < acked_head:
                raise Mismatch(f"{name}: head {head} went back behind {acked_head} (I3)")
            if head > present.visible_seq + 1_000:
                raise Mismatch(f"{name}: head {head} jumped away")
            lose_tail(topic, head)
        lose_unlogged(topic)
        if topic.durability is not Durability.FSYNC:
            topic.last_ts = min(topic.last_ts, self.db.engine.topic(name).last_ts)
        topic.unsure |= present.keys.keys() - topic.keys.keys()


def is_ahead(key: Key, topic: WorldTopic, now: int) -> bool:
    """It was given when the wall clock was ahead: how long it is remembered is not foretold."""
    return key.expires_ts > now + topic.settings.idempotency_window_ms


def numbers_of(state: TopicState) -> dict[str, Any]:
    return {
        "head_seq": state.head_seq,
        "earliest_seq": state.earliest_seq,
        "evict_floor": state.evict_floor,
        "count": state.count,
        "bytes": state.bytes,
        "epoch": state.epoch,
        "settings": state.config,
    }


def numbers_in(topic: WorldTopic) -> dict[str, Any]:
    return {
        "head_seq": topic.visible_seq,
        "earliest_seq": topic.earliest_seq,
        "evict_floor": topic.evict_floor,
        "count": len(topic.live),
        "bytes": topic.bytes,
        "epoch": topic.epoch,
        "settings": topic.settings.to_wire(),
    }


def agree(one: Judge, two: Judge, label: str) -> None:
    """Two engines show the same."""
    for judge in (one, two):
        for state in judge.db.topics():
            list(read_events(judge.db, state.topic))
    first, second = ({s.topic: numbers_of(s) for s in j.db.topics()} for j in (one, two))
    _same(f"{label}: recovered twice", second, first)
    for name in first:
        _same(
            f"{label}: {name} recovered twice",
            list(read_events(two.db, name)),
            list(read_events(one.db, name)),
        )


def _same(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise Mismatch(f"{what}: found {found}, expected {expected}")


__all__ = ["LIVE", "Judge", "Mismatch", "agree", "numbers_of", "read_events"]
