"""Giving space back: segments below the floors, mostly dead ones, old ones to the cold tier.

Only ever changes when bytes leave a disk, never what a reader sees (I7, I8). The owner decides and
is told; the files are changed in between, by the keeper.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from headwater.engine.core import EngineCore
from headwater.engine.topic import Topic
from headwater.engine.topics import Topics
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import Entries
from headwater.store.dropping import list_dropped, remove_dropped, rename_for_drop
from headwater.store.reclaim import choose_drops, choose_relocations, is_rewrite_due
from headwater.store.segment import Segment


@dataclass(slots=True)
class TopicChores:
    """What one topic's files need, decided at one moment."""

    topic: Topic
    drops: list[Segment]
    rewrites: list[tuple[Segment, Entries]]
    relocations: list[Segment]


class Reclaimer:
    def __init__(self, core: EngineCore, topics: Topics) -> None:
        self._core = core
        self._topics = topics

    def run(self) -> None:
        core = self._core
        self.remove_dropped_topics()
        for chores in core.owner.call(self._decide):
            topic = chores.topic
            topic.files.drop(*chores.drops)
            for segment, entries in chores.rewrites:
                changed, compacted = topic.files.rewrite(segment, entries)
                core.owner.call(partial(_rewritten, topic, segment, changed, compacted))
            for segment in chores.relocations:
                topic.files.copy_to_cold(segment)
                moved = topic.files.drop_hot(segment)
                core.owner.call(partial(_replace, topic, segment, moved))

    def finish_drops(self) -> None:
        """At start: directories of dropped topics that an earlier life had renamed."""
        core = self._core
        topics = core.directory / TOPICS_DIRECTORY
        for topic_id in list_dropped(core.disk, topics):
            remove_dropped(core.disk, topics, topic_id, core.cold_store_of(topic_id))

    def remove_dropped_topics(self) -> None:
        """Also before each snapshot: the log will no longer tell that they have to go."""
        core = self._core
        topics = core.directory / TOPICS_DIRECTORY
        while core.dropped:
            topic_id = core.dropped[0]
            rename_for_drop(core.disk, topics, topic_id)
            remove_dropped(core.disk, topics, topic_id, core.cold_store_of(topic_id))
            core.dropped.pop(0)

    def _decide(self) -> list[TopicChores]:
        core = self._core
        chosen = []
        now = core.clock.wall_ms()
        for topic in list(core.reclaim.values()):
            if topic.dropped or not topic.loaded:
                continue
            chores = self._chores(topic, now)
            if chores.drops or chores.rewrites or chores.relocations:
                chosen.append(chores)
            active = topic.active_segment
            if active is None:
                del core.reclaim[topic.topic_id]  # nothing left that time alone could change
        return chosen

    def _chores(self, topic: Topic, now: int) -> TopicChores:
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
        return TopicChores(topic, drops, rewrites, relocations)


def _rewritten(topic: Topic, old: Segment, new: Segment, entries: Entries) -> None:
    """The segment has new bytes at new offsets."""
    if topic.dropped:
        return
    topic.log.index.set_places(new.first_seq, entries)
    _replace(topic, old, new)


def _replace(topic: Topic, old: Segment, new: Segment) -> None:
    topic.segments = [new if segment is old else segment for segment in topic.segments]
    topic.meta = None
