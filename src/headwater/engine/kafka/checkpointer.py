"""The checkpoint: state from the owner, sync position from the log; the maintenance thread writes.

The state is taken first. So what is synced is never less than what the state knows, and a start
reads everything younger than the state from the log again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from headwater.disk import NO_ROOM, replace_file
from headwater.engine.kafka.core import KafkaCore
from headwater.format.kafka.checkpoint import (
    GroupMeta,
    KafkaCheckpoint,
    KafkaTopicMeta,
    SegmentMeta,
    encode_checkpoint,
)
from headwater.format.kafka.events import GroupMembership
from headwater.format.kafka.names import CHECKPOINT_NAME, COPY_NAME
from headwater.store.kafka.files import SpareRoom


class SavedState(NamedTuple):
    """What the owner knew at one moment."""

    as_of: int
    topics: tuple[KafkaTopicMeta, ...]
    groups: tuple[GroupMeta, ...]
    next_producer_id: int
    running_s: int
    memberships: tuple[GroupMembership, ...]


class KafkaCheckpointer:
    def __init__(
        self,
        core: KafkaCore,
        sync: Callable[[], SegmentMeta],
        saved: Callable[[SegmentMeta], None],
    ) -> None:
        self._core = core
        self._note_synced = sync
        """Syncs the log and returns the facts of its active segment."""
        self._saved = saved
        """Called when a checkpoint covers that much."""
        self._spare = SpareRoom(core.disk, core.directory)
        self._lock = threading.Lock()

    def due(self) -> bool:
        core = self._core
        idle = core.save_soon and core.unsaved_bytes > 0
        return idle or core.unsaved_bytes >= core.settings.checkpoint_bytes

    def run(self, *, clean: bool = False) -> KafkaCheckpoint:
        """Not as the owner. One at a time: a state must not replace a newer one."""
        with self._lock:
            state = self._core.owner.call(self._state)
            try:
                return self._save(state, clean=clean)
            except Exception:
                self._core.owner.call(self._not_saved)
                raise

    def _save(self, state: SavedState, *, clean: bool) -> KafkaCheckpoint:
        core = self._core
        active = self._note_synced()
        sealed = core.owner.call(lambda: tuple(core.sealed))
        before = tuple(meta for meta in sealed if meta.base_id < active.base_id)
        checkpoint = KafkaCheckpoint(
            state.as_of,
            (*before, active),
            state.topics,
            state.groups,
            state.next_producer_id,
            clean,
            running_s=state.running_s,
            memberships=state.memberships,
        )
        self.write(checkpoint)
        self._saved(active)
        return checkpoint

    def write(self, checkpoint: KafkaCheckpoint) -> None:
        """Both files: whatever is removed afterwards, each of them knows of it."""
        data = encode_checkpoint(checkpoint)
        for name in (CHECKPOINT_NAME, COPY_NAME):
            self._replace(name, data)
        self._spare.keep(len(data))
        self._core.counters.checkpoints += 1

    def _replace(self, name: str, data: bytes) -> None:
        path = self._core.directory / name
        try:
            replace_file(self._core.disk, path, data)
        except OSError as error:
            if error.errno not in NO_ROOM or not self._spare.give_up():
                raise
            replace_file(self._core.disk, path, data)

    def _not_saved(self) -> None:
        """As the owner: there is as much to save as before, and soon."""
        self._core.unsaved_bytes += 1
        self._core.save_soon = True

    def _state(self) -> SavedState:
        core = self._core
        core.unsaved_bytes = 0
        core.save_soon = False
        return SavedState(
            core.applied_id,
            tuple(topic.meta() for topic in core.registry),
            core.offsets.meta(),
            core.producer_ids_end,
            core.running_s(),
            core.memberships.all(),
        )
