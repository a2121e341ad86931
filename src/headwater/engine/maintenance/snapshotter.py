"""Snapshots: write the metadata of all topics, then delete log files that are no longer needed.

The snapshot before the newest is kept, and log files go only when both cover them: should the
newest turn out unreadable, the one before and the log still have everything (I7).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from headwater.disk import have_directory, replace_file, sync_names
from headwater.engine.owner import call_in_slices
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.format.control_frames import QueueMeta
from headwater.format.names import (
    CURRENT_NAME,
    REPAIRS_NAME,
    WAL_DIRECTORY,
    parse_wal_file_name,
)
from headwater.format.snapshot import (
    META_DIRECTORY,
    ShardMeta,
    Snapshot,
    TopicMeta,
    encode_snapshot,
    parse_snapshot_name,
    snapshot_name,
)
from headwater.model.queue.history import remember

KEPT = 2


class Snapshotter:
    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._covered_before: list[int] = []

    def write(self, covered: list[int]) -> None:
        """On the maintenance thread, after a full checkpoint of frames up to `covered`."""
        core = self._core
        call_in_slices(core.owner, core.clock, self._describe_topics())
        snapshot = core.owner.call(lambda: self._take(covered))
        try:
            self._store(snapshot)
        except BaseException:
            core.changed = True  # what it says is on no disk yet
            raise
        core.counters.snapshots += 1
        self._trim(covered)

    def _store(self, snapshot: Snapshot) -> None:
        core = self._core
        directory = core.directory / META_DIRECTORY
        have_directory(core.disk, directory)
        path = directory / snapshot_name(snapshot.number)
        replace_file(core.disk, path, encode_snapshot(snapshot))
        self._remove_old(snapshot.number)

    def _describe_topics(self) -> Iterator[None]:
        """What is known of each is made ahead; the snapshot makes again what changes meanwhile."""
        for topic in list(self._core.registry):
            if topic.creation is None and topic.meta is None and not topic.dropped:
                topic_meta(self._core, topic)
                yield

    def _take(self, covered: list[int]) -> Snapshot:
        core = self._core
        core.changed = False
        core.snapshot_number += 1
        assert core.wal is not None
        root = core.directory / WAL_DIRECTORY
        shards = [
            ShardMeta(_relative(str(log.directory), str(root)), frame, log.log_id)
            for log, frame in zip(core.wal.logs, covered, strict=True)
        ]
        shards += core.retired.values()
        return Snapshot(
            number=core.snapshot_number,
            next_topic_id=core.registry.next_topic_id,
            topics=tuple(
                topic_meta(core, topic) for topic in core.registry if topic.creation is None
            ),
            shards=tuple(shards),
            epochs=dict(core.registry.epochs),
            routers=tuple(router.meta() for router in core.routers if router.made),
        )

    def _remove_old(self, newest: int) -> None:
        core = self._core
        directory = core.directory / META_DIRECTORY
        numbers = map(parse_snapshot_name, core.disk.list_directory(directory))
        # By listing, not by arithmetic: a snapshot that could not be written has left a gap.
        for number in sorted(n for n in numbers if n is not None and n <= newest)[:-KEPT]:
            core.disk.unlink(directory / snapshot_name(number))
        sync_names(core.disk, directory)

    def _trim(self, covered: list[int]) -> None:
        """Delete log files that the snapshot before this one covered already."""
        core = self._core
        assert core.wal is not None
        before, self._covered_before = self._covered_before, covered
        if not before:
            return
        for shard, log, frame in zip(core.wal.shards, core.wal.logs, before, strict=True):
            paths = shard.call(partial(log.release_before, frame + 1)).result()
            for path in paths:
                core.disk.unlink(path)
            if paths:
                sync_names(core.disk, log.directory)
        self._remove_retired()

    def has_files_to_let_go(self) -> bool:
        """Log files before the active one have taken effect: two snapshots would let them go."""
        core = self._core
        assert core.wal is not None
        for log, shard in zip(core.wal.logs, core.shards, strict=True):
            name = map(parse_wal_file_name, core.disk.list_directory(log.directory))
            numbers = sorted(n for n in name if n is not None and n <= log.active_number)
            if len(numbers) > 1 and numbers[1] <= shard.published_frame + 1:
                return True
        return False

    def _remove_retired(self) -> None:
        """Log directories of an earlier layout: two snapshots cover all of their frames."""
        core = self._core
        root = core.directory / WAL_DIRECTORY
        for name in list(core.retired):
            directory = root / name if name else root
            # CURRENT first: without it, files that are already gone are not missed. Then one
            # by one from the oldest, so that what is left is always whole.
            names = core.disk.list_directory(directory)
            old = [old_name for old_name in names if old_name in (CURRENT_NAME, REPAIRS_NAME)]
            old += [old_name for old_name in names if parse_wal_file_name(old_name) is not None]
            for old_name in old:
                core.disk.unlink(directory / old_name)
                sync_names(core.disk, directory)
            if name and not core.disk.list_directory(directory):
                core.disk.remove_directory(directory)
                sync_names(core.disk, root)
            del core.retired[name]


def topic_meta(core: EngineCore, topic: Topic) -> TopicMeta:
    """What a snapshot says of a topic; made again only when something changed."""
    if topic.meta is not None:
        return topic.meta
    log = topic.log
    assert topic.loaded, "a topic that was not loaded keeps its meta"
    active = topic.active_segment
    topic.meta = TopicMeta(
        topic_id=topic.topic_id,
        name=topic.name,
        epoch=log.epoch,
        settings=log.settings.to_stored(),
        head_seq=log.visible_seq,
        ceiling=core.ceilings.ceiling_of(topic.topic_id),
        evict_floor=log.evict_floor,
        earliest_seq=log.earliest_seq,
        delete_below=log.delete_below,
        eviction_reason=int(log.losses),
        count=log.count,
        bytes=log.bytes,
        last_ts=topic.last_ts,
        checkpointed_seq=topic.checkpointed_seq,
        active_first_seq=0 if active is None else active.first_seq,
        active_data_bytes=0 if active is None else active.data_bytes,
        keys=tuple(topic.keys.entries()),
        queue=_queue_meta(core, topic),
        flagged=_flagged(topic),
    )
    return topic.meta


def _flagged(topic: Topic) -> tuple[tuple[int, int], ...]:
    known = topic.stored.flagged
    if not known:
        return ()
    return tuple(
        (each.first_seq, known[each.first_seq])
        for each in topic.segments
        if each.first_seq in known
    )


def _queue_meta(core: EngineCore, topic: Topic) -> QueueMeta | None:
    if topic.queue is None:
        return None if topic.lease_history is None else topic.lease_history.meta()
    return remember(
        topic.queue.leases,
        core.clock.monotonic_us(),
        core.clock.wall_ms(),
        durable=topic.log.settings.leases_durable,
        ceiling=core.lease_ceilings.ceiling_of(topic.topic_id),
    )


def _relative(directory: str, root: str) -> str:
    return directory.removeprefix(root).strip("/")
