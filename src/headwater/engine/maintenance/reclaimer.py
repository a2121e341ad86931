"""Giving space back: segments below the floors, mostly dead ones, old ones to the cold tier.

Only ever changes when bytes leave a disk, never what a reader sees (I7, I8). The owner decides and
takes over the result; in between the maintenance thread changes the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

import msgspec

from headwater.core.errors import DamageError, HeadwaterError
from headwater.engine.owner import call_in_slices
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import Entries, topic_directory_name
from headwater.store.reclaim import (
    choose_drops,
    choose_relocations,
    is_rewrite_due,
    list_dropped,
    remove_dropped,
    rename_for_drop,
)
from headwater.store.segment import Segment


class TopicWork(msgspec.Struct):
    """What one topic's files need, decided at one moment."""

    topic: Topic
    drops: list[Segment]
    rewrites: list[tuple[Segment, Entries]]
    relocations: list[Segment]


class ReclaimTask(msgspec.Struct, frozen=True):
    """One thing to do to files, and what to do as the owner when it was not done."""

    work: Callable[[], object]
    put_back: Callable[[], None]
    is_cold: bool
    """It needs the cold store."""


class Reclaimer:
    """An error of one topic, or of the cold store, stops no other topic from giving space back. It
    is raised at the end of the round, and what failed is tried again in the next."""

    def __init__(self, core: EngineCore, topics: Topics) -> None:
        self._core = core
        self._topics = topics
        self._hidden: list[int] = []
        """Topics that were dropped: their directories are out of sight and still have to go."""

    def run(self) -> None:
        self.hide_dropped_topics()
        self._carry_out(chain(self._removals(), self._work_of_all()))

    def remove_hidden(self) -> None:
        """What can go at once; the rest is for the next round, or the next start."""
        with suppress(OSError, HeadwaterError):
            self._carry_out(self._removals(), while_closing=True)

    def _carry_out(self, tasks: Iterable[ReclaimTask], *, while_closing: bool = False) -> None:
        core = self._core
        first_error: Exception | None = None
        cold_is_away = False
        for step in tasks:
            if core.closing and not while_closing:
                return  # the next start goes on: thousands of segments may be on their way
            if step.is_cold and cold_is_away:
                core.owner.call(step.put_back)
                continue
            try:
                step.work()
            except (OSError, HeadwaterError) as error:
                first_error = first_error or error
                # It may take long until it does not answer, and log files wait for this thread.
                cold_is_away |= step.is_cold and not isinstance(error, DamageError)
                core.owner.call(step.put_back)
        if first_error is not None:
            raise first_error

    def find_hidden(self) -> None:
        """At start: what an earlier process had no time to remove."""
        core = self._core
        self._hidden = list_dropped(core.disk, core.directory / TOPICS_DIRECTORY)

    def hide_dropped_topics(self) -> None:
        """Also before each snapshot: the log will no longer say that they have to go."""
        core = self._core
        topics = core.directory / TOPICS_DIRECTORY
        while core.dropped:
            topic_id = core.dropped[0]
            rename_for_drop(core.disk, topics, topic_id)
            core.maps.forget_all_in(topics / topic_directory_name(topic_id))
            self._hidden.append(topic_id)
            core.dropped.pop(0)

    # -- the tasks of a round

    def _removals(self) -> Iterator[ReclaimTask]:
        hidden, self._hidden = self._hidden, []
        has_cold = self._core.cold is not None
        for topic_id in hidden:
            put_back = partial(self._hidden.append, topic_id)
            yield ReclaimTask(partial(self._remove, topic_id), put_back, is_cold=has_cold)

    def _remove(self, topic_id: int) -> None:
        core = self._core
        topics = core.directory / TOPICS_DIRECTORY
        remove_dropped(core.disk, topics, topic_id, core.cold_store_of(topic_id))

    def _work_of_all(self) -> Iterator[ReclaimTask]:
        core = self._core
        chosen: list[TopicWork] = []
        call_in_slices(core.owner, core.clock, self._decide(chosen))
        for work_of in chosen:
            yield from self._tasks_for(work_of)

    def _tasks_for(self, work_of: TopicWork) -> Iterator[ReclaimTask]:
        topic, drops = work_of.topic, work_of.drops
        again = partial(self._decide_again, topic)
        if drops:
            put_back = partial(self._decide_again, topic, drops)
            is_cold = any(segment.is_cold for segment in drops)
            yield ReclaimTask(partial(topic.files.drop, *drops), put_back, is_cold)
        for segment, entries in work_of.rewrites:
            work = partial(self._rewrite, topic, segment, entries)
            yield ReclaimTask(work, again, segment.is_cold)
        for segment in work_of.relocations:
            yield ReclaimTask(partial(self._relocate, topic, segment), again, is_cold=True)

    def _rewrite(self, topic: Topic, segment: Segment, entries: Entries) -> None:
        changed, compacted = topic.files.rewrite(segment, entries)
        self._core.owner.call(partial(_rewritten, topic, segment, changed, compacted))
        topic.files.forget(segment)

    def _relocate(self, topic: Topic, segment: Segment) -> None:
        topic.files.copy_to_cold(segment)
        moved = topic.files.drop_hot(segment)
        self._core.owner.call(partial(_replace, topic, segment, moved))

    def _decide_again(self, topic: Topic, drops: Sequence[Segment] = ()) -> None:
        """Something could not be done: the next round decides again."""
        if not topic.dropped:
            topic.segments = [*drops, *topic.segments]
            self._core.reclaim[topic.topic_id] = topic

    def _decide(self, chosen: list[TopicWork]) -> Iterator[None]:
        core = self._core
        now = core.clock.wall_ms()
        for topic in list(core.reclaim.values()):
            if topic.dropped or not topic.loaded:
                continue
            work_of = self._work_of(topic, now)
            if work_of.drops or work_of.rewrites or work_of.relocations:
                chosen.append(work_of)
            active = topic.active_segment
            if active is None:
                core.reclaim.pop(topic.topic_id, None)  # nothing left that time alone could change
            yield

    def _work_of(self, topic: Topic, now: int) -> TopicWork:
        core = self._core
        settings = core.settings.segments
        active = topic.active_segment
        if active is not None:
            sealed = topic.files.seal_if_due(active, now)
            if sealed.sealed:
                topic.segments[-1] = sealed
                topic.meta = None
                core.changed = True
        drops = choose_drops(topic.segments, topic.durable_earliest)
        gone = {segment.first_seq for segment in drops}
        topic.segments = [s for s in topic.segments if s.first_seq not in gone]
        rewrites = []
        base = topic.log.index.base_seq
        for segment in topic.segments:
            # A segment that begins below the floor will be dropped whole before long.
            if segment.first_seq >= base and segment.sealed and topic.has_holes:
                entries = topic.log.index.entries(segment.first_seq, segment.end_seq)
                if is_rewrite_due(segment, entries, settings):
                    rewrites.append((segment, entries))
        busy = {segment.first_seq for segment, _ in rewrites}
        relocations = []
        if core.cold is not None:
            relocations = [
                s for s in choose_relocations(topic.segments, settings) if s.first_seq not in busy
            ]
        return TopicWork(topic, drops, rewrites, relocations)


def _rewritten(topic: Topic, old: Segment, new: Segment, entries: Entries) -> None:
    """The segment has new bytes at new offsets."""
    if topic.dropped:
        return
    topic.log.index.set_entries(new.first_seq, entries)
    _replace(topic, old, new)


def _replace(topic: Topic, old: Segment, new: Segment) -> None:
    topic.segments = [new if segment is old else segment for segment in topic.segments]
    topic.meta = None
