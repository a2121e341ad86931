"""Reading a topic back from its files, when a call first needs it.

A topic that no call touches after a restart costs its entry in the snapshot and nothing else, so a
hundred thousand idle topics start as fast as ten. Loading is file work and may run anywhere;
`install` is for the owner.
"""

from __future__ import annotations

from pathlib import PurePath

import msgspec

from headwater.config.topic import stored_settings
from headwater.core.arrays import numpy
from headwater.core.errors import DamageError, ForeignFileError, StorageError
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.format.frame import FrameFlag
from headwater.format.segment import (
    SEGMENT_FRAME,
    Entries,
    FrameFault,
    IndexFlag,
    frame_faults,
    index_flags,
)
from headwater.format.segment.run import heads_at
from headwater.format.snapshot import TopicMeta
from headwater.model.queue import LeaseHistory
from headwater.model.tags import TagIndex
from headwater.model.topic import TopicLog
from headwater.recovery.topics.stored_topic import StoredLog, StoredTopic, load_log
from headwater.store.pair import RecordDamage
from headwater.store.segment import Segment

Loaded = StoredLog

_TAGGED = int(FrameFlag.HAS_TAG)
_UNREADABLE = int(IndexFlag.DELETED | IndexFlag.DAMAGED)
_TAG_IS_SOUND = (FrameFault.NONE, FrameFault.DELETED, FrameFault.STATE)


def topic_from_meta(core: EngineCore, meta: TopicMeta) -> Topic:
    """A topic as its snapshot describes it."""
    settings = stored_settings(meta.settings)
    log = TopicLog(settings, meta.epoch, meta.head_seq + 1)
    log.last_write_ts = meta.last_ts
    topic = core.new_topic(meta.topic_id, meta.name, log)
    topic.checkpointed_seq = meta.checkpointed_seq
    topic.stored = StoredTopic.from_meta(meta)
    topic.last_ts = meta.last_ts
    topic.durable_earliest = meta.earliest_seq
    topic.loaded = False
    topic.meta = meta
    if not settings.durability.is_logged:
        topic.logged_upto = meta.checkpointed_seq
    if meta.ceiling:
        core.ceilings.restore(meta.topic_id, meta.ceiling)
    if meta.queue is not None:
        topic.lease_history = LeaseHistory.since(meta.queue)
    for key in meta.keys:
        topic.keys.remember(key)
    return topic


def load_topic(topic: Topic) -> Loaded:
    """Read the index files. Entries below the earliest live seq are not read."""
    log = topic.log
    return load_log(
        topic.files,
        log.settings,
        log.epoch,
        topic.stored,
        topic.checkpointed_seq,
        topic.last_ts,
        log.lost_as,
    )


def load_once(core: EngineCore, topic: Topic) -> Loaded:
    """Load a topic that several callers may need at once. Only the first repairs its files: a
    second time would cut what was appended since."""
    if topic.broken is not None:
        raise topic.broken
    with core.load_lock:
        # In this order, for `install` changes both in the other one without the lock.
        loaded: Loaded | None = topic.loading
        if loaded is None and topic.loaded:
            return Loaded(topic.log, topic.segments, has_tags=False)
        try:
            loaded = topic.loading = loaded or load_topic(topic)
        except (DamageError, ForeignFileError) as error:
            note_refused(core, topic, error)
            raise
        return loaded


def note_refused(core: EngineCore, topic: Topic, error: StorageError) -> None:
    """Every caller is refused with the same error; the log reports it once."""
    stored, path = topic.stored, error.path or topic.files.directory
    first, last = stored.first_needed, max(topic.checkpointed_seq, stored.first_needed)
    reason = f"the whole topic is refused: {error.what}"
    core.note(
        topic.name, RecordDamage(PurePath(path), error.offset or 0, first, reason, last_seq=last)
    )


def install(topic: Topic, loaded: Loaded, core: EngineCore | None = None) -> None:
    """As the owner: the topic is whole again.

    With `core`, maintenance checks its segments: an earlier process may have left some to drop.
    """
    if topic.loaded:
        return
    if core is not None:
        core.reclaim[topic.topic_id] = topic
    loaded.log.last_read_ts = topic.log.last_read_ts
    loaded.log.lost_as = topic.log.lost_as
    topic.log = loaded.log
    topic.segments = loaded.segments
    topic.last_ts = max(topic.last_ts, loaded.log.last_write_ts)
    topic.tags_complete = not loaded.has_tags
    topic.untagged_upto = topic.checkpointed_seq
    topic.meta = None  # the files may know more than the snapshot did
    topic.loaded = True
    topic.loading = None


class TagRead(msgspec.Struct, frozen=True):
    """A stretch of a segment with tagged records, frozen for reading."""

    segment: Segment
    first_seq: int
    entries: Entries


def plan_tags(topic: Topic) -> list[TagRead]:
    """As the owner: where the tags are that are not in memory yet."""
    reads: list[TagRead] = []
    if topic.tags_complete:
        return reads
    index = topic.log.index
    for segment in topic.segments:
        first = max(segment.first_seq, index.base_seq)
        last = min(segment.end_seq, topic.untagged_upto)
        if first <= last:
            entries = index.entries(first, last)
            if (index_flags(entries) & _TAGGED).any():
                reads.append(TagRead(segment, first, entries))
    return reads


def load_tags(topic: Topic, reads: list[TagRead]) -> list[tuple[bytes, int]]:
    """Anywhere: the tags of live records, in order of seq.

    A damaged record has no tag that could be trusted; it is never served, deleted or not. One whose
    state alone is unknown has: a crash tore its delete, which the log is about to do again (I8).
    """
    tags: list[tuple[bytes, int]] = []
    for read in reads:
        first, entries = read.first_seq, read.entries
        flags = index_flags(entries)
        part = topic.files.read(read.segment, first, first + len(entries) - 1, entries)
        faults = frame_faults(part.buffer, entries, first, part.base)
        sound = numpy.isin(faults, _TAG_IS_SOUND)
        tagged = numpy.flatnonzero((flags & _TAGGED != 0) & (flags & _UNREADABLE == 0) & sound)
        offsets = entries["offset"][tagged].astype(numpy.int64) - part.base
        heads = heads_at(part.buffer, SEGMENT_FRAME, offsets)
        starts = offsets + SEGMENT_FRAME.size + heads["node_len"]
        ends = (starts + heads["tag_len"]).tolist()
        buffer = part.buffer
        tags += [
            (bytes(buffer[start:end]), seq)
            for start, end, seq in zip(
                starts.tolist(), ends, (tagged + first).tolist(), strict=True
            )
        ]
    return tags


def install_tags(topic: Topic, reads: list[TagRead], tags: list[tuple[bytes, int]]) -> bool:
    """As the owner. False when segments were rewritten or moved meanwhile: plan again."""
    if topic.tags_complete:
        return True
    now = {id(segment) for segment in topic.segments}
    base = topic.log.index.base_seq
    if any(id(p.segment) not in now and p.segment.end_seq >= base for p in reads):
        return False
    if topic.log.tags is None:
        topic.log.tags = TagIndex()
    topic.log.tags.add_older(tags)
    topic.tags_complete = True
    return True
