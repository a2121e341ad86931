"""Space reclamation: deletes segments without a live record, rewrites those that are mostly dead.

The checkpoint comes first. It no longer lists a segment before its files go; it has the new form of
a segment before its index is swapped. So a crash at any point leaves files that are merely too
many, and the next start removes them (I7). An error at any point leaves files that the next round
removes: the reclaimer remembers files that nothing refers to until a checkpoint is without them.

An active segment that is mostly dead is sealed before it is full: otherwise the last segment would
keep its space for ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from headwater.core.errors import DamageError
from headwater.disk import sync_names
from headwater.engine.kafka.checkpointer import KafkaCheckpointer
from headwater.engine.kafka.core import KafkaCore
from headwater.format.checksum import checksum64
from headwater.format.kafka.checkpoint import KafkaCheckpoint, SegmentMeta, rewritten
from headwater.format.kafka.names import REWRITE_SUFFIX, index_name, log_name
from headwater.store.kafka.rewrite import (
    LiveBatches,
    find_live_batches,
    keys_in,
    strangers,
    swap_index,
    write_index_again,
    write_live_batches,
)

_NONE_LIVES: Final = 2**63
_KEYS_AT_ONCE: Final = 1_024
"""The owner looks up so many in one call."""
_ACTIVE_SCAN_US: Final = 60_000_000


class _Scanned(NamedTuple):
    """What lived in a segment at its last scan."""

    log_number: int
    keys: list[bytes]
    first_live: list[int]
    """Of each key, within the segment."""


class SpaceReclaimer:
    """For the maintenance thread. Nothing here is called as the owner."""

    def __init__(
        self,
        core: KafkaCore,
        checkpointer: KafkaCheckpointer,
        take_number: Callable[[], int],
        seal: Callable[[int], bool],
    ) -> None:
        self._core = core
        self._checkpointer = checkpointer
        self._take_number = take_number
        self._seal = seal
        """End the active segment, if it still is that one."""
        self._active_scanned = (-1, 0, 0)
        """Number, bytes and time of its last scan."""
        self._scanned: dict[int, _Scanned] = {}
        self._to_delete: list[str] = []
        """Files that the next checkpoint no longer refers to."""

    def run(self) -> None:
        core = self._core
        core.owner.call(self._begin)
        try:
            checkpoint = self._round()
            if self._seal_what_is_dead(checkpoint):
                self._round()
        except Exception:
            self._scanned.clear()
            core.owner.call(core.reclaim_soon)
            raise

    def _begin(self) -> None:
        self._core.removed_records = False

    def _round(self) -> KafkaCheckpoint:
        checkpoint = self._save()
        deleted: list[SegmentMeta] = []
        mostly_dead: list[tuple[SegmentMeta, LiveBatches]] = []
        for listed in checkpoint.segments[:-1]:
            meta = self._resolved(listed)
            if meta.base_id + meta.entries > checkpoint.as_of:
                continue
            living = self._find_live(meta)
            if living is None:
                continue
            if not living.is_needed:
                deleted.append(meta)
            elif living.dead_ratio > self._core.settings.rewrite_dead_ratio:
                mostly_dead.append((meta, living))
        if deleted:
            self._delete(deleted)
        for meta, living in mostly_dead:
            self._rewrite(meta, living)
        if self._to_delete:
            self._save()
        return checkpoint

    def _save(self) -> KafkaCheckpoint:
        """A checkpoint; then it deletes the files that the checkpoint no longer refers to."""
        core = self._core
        checkpoint = self._checkpointer.run()
        if self._to_delete:
            while self._to_delete:
                with contextlib.suppress(FileNotFoundError):
                    core.disk.unlink(core.directory / self._to_delete[-1])
                self._to_delete.pop()
            sync_names(core.disk, core.directory)
        return checkpoint

    def _find_live(self, meta: SegmentMeta) -> LiveBatches | None:
        """What lives in it. None when that has not changed since the last scan."""
        core, known = self._core, self._scanned.get(meta.number)
        if known is None or known.log_number != meta.log_number:
            keys = keys_in(core.files.entries(meta.number, meta.entries))
            known = _Scanned(meta.log_number, keys, [])
        first_live = self._first_live(known.keys)
        end = meta.base_id + meta.entries
        within = [min(max(first_live[key], meta.base_id), end) for key in known.keys]
        if within == known.first_live:
            return None
        self._scanned[meta.number] = known._replace(first_live=within)
        return find_live_batches(
            core.files.entries(meta.number, meta.entries), meta.base_id, first_live
        )

    def _first_live(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """The first global id of each key that consumers may still read.

        Events of the log's own do not count: the checkpoint has their effect. And what was removed
        since the partition's bytes were counted waits for the next round, with its sizes.
        """
        first_live: dict[bytes, int] = dict.fromkeys(keys, _NONE_LIVES)

        def lookup(some: Sequence[bytes]) -> None:
            for key in some:
                partition = self._core.registry.by_key(key)
                if partition is not None and partition.sized_from < partition.high_watermark:
                    first_live[key] = partition.id_at(partition.sized_from)

        for at in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[at : at + _KEYS_AT_ONCE]
            self._core.owner.call(partial(lookup, some))
        return first_live

    def _seal_what_is_dead(self, checkpoint: KafkaCheckpoint) -> bool:
        """Whether the active segment was sealed, because that gives enough space back."""
        core, active = self._core, checkpoint.segments[-1]
        applied = min(active.entries, checkpoint.as_of - active.base_id)
        if applied <= 0 or active.log_bytes < core.settings.seal_dead_bytes:
            return False
        if not self._is_worth_a_scan(active):
            core.owner.call(core.reclaim_soon)
            return False
        entries = core.files.entries(active.number, applied)
        living = find_live_batches(entries, active.base_id, self._first_live(keys_in(entries)))
        dead = living.stored_bytes - living.live_bytes
        if dead < core.settings.seal_dead_bytes:
            return False
        if living.dead_ratio <= core.settings.rewrite_dead_ratio:
            return False
        return self._seal(active.number)

    def _is_worth_a_scan(self, active: SegmentMeta) -> bool:
        """It may have millions of entries, and something may be removed in every round."""
        number, size, at_us = self._active_scanned
        now_us = self._core.clock.monotonic_us()
        grown = active.log_bytes - size >= self._core.settings.seal_dead_bytes
        if active.number == number and not grown and now_us - at_us < _ACTIVE_SCAN_US:
            return False
        self._active_scanned = (active.number, active.log_bytes, now_us)
        return True

    def _delete(self, segments: Sequence[SegmentMeta]) -> None:
        core = self._core
        keys = {key for meta in segments for key in self._scanned[meta.number].keys}
        core.owner.call(lambda: self._forget(segments, keys))
        for meta in segments:
            del self._scanned[meta.number]
            self._delete_later(index_name(meta.number), *self._log_names(meta))
        self._save()
        for meta in segments:
            core.files.forget(meta.number)
            core.files.forget(meta.log_number)
        core.counters.segments_deleted += len(segments)

    def _forget(self, segments: Sequence[SegmentMeta], keys: set[bytes]) -> None:
        """As the owner: the segments are no longer there, nor the records they had."""
        core = self._core
        for key in keys:
            partition = core.registry.by_key(key)
            if partition is None or partition.ids is None:
                continue
            for meta in segments:
                end = meta.base_id + meta.entries
                partition.removed += partition.ids.range_cardinality(meta.base_id, end)
                partition.ids.remove_range(meta.base_id, end)
            core.changed(partition.topic)
        numbers = {meta.number for meta in segments}
        left = [meta for meta in core.sealed if meta.number not in numbers]
        core.set_segments(left, core.active_number, core.active_base_id)

    def _rewrite(self, meta: SegmentMeta, living: LiveBatches) -> None:
        core = self._core
        if strangers(living, meta.log_number, meta.log_bytes):
            path = core.directory / index_name(meta.number)
            raise DamageError("entries lead out of their log", path=path, advice="restore a backup")
        number = self._take_number()
        log = core.files.log(meta.log_number, meta.log_bytes)
        rewrite = write_live_batches(core.disk, core.directory, meta.number, number, log, living)
        changing = msgspec.structs.replace(meta, rewrite=rewrite)
        self._replace(changing)
        self._save()
        swap_index(core.disk, core.directory, meta.number)
        core.files.forget(meta.number)
        self._finish(changing)
        self._save()
        core.files.forget(meta.log_number)
        core.counters.segments_rewritten += 1

    def _resolved(self, meta: SegmentMeta) -> SegmentMeta:
        """The segment as it is: an error may have ended its rewrite before the swap, or behind."""
        core, rewrite = self._core, meta.rewrite
        if rewrite is None:
            return meta
        core.files.forget(meta.number)
        contents = core.files.entries(meta.number, meta.entries).tobytes()
        if checksum64(contents) == rewrite.checksum:
            # Its name may never become durable, if a sync of names failed: it gets it once more.
            write_index_again(core.disk, core.directory, meta.number, contents)
            core.files.forget(meta.number)
            return self._finish(meta)
        with contextlib.suppress(FileNotFoundError):
            core.disk.unlink(core.directory / (index_name(meta.number) + REWRITE_SUFFIX))
        self._delete_later(log_name(rewrite.log_number), index_name(rewrite.log_number))
        return self._replace(msgspec.structs.replace(meta, rewrite=None))

    def _finish(self, meta: SegmentMeta) -> SegmentMeta:
        """The index is the new one."""
        self._delete_later(*self._log_names(meta))
        return self._replace(rewritten(meta))

    def _replace(self, new: SegmentMeta) -> SegmentMeta:
        """Other facts about one segment; where its ids are does not change."""
        core = self._core

        def work() -> None:
            core.sealed = [new if meta.number == new.number else meta for meta in core.sealed]

        core.owner.call(work)
        return new

    def _delete_later(self, *names: str) -> None:
        self._to_delete += names

    def _log_names(self, meta: SegmentMeta) -> list[str]:
        """The log of a segment; with the empty index of its own that a rewrite gave it."""
        names = [log_name(meta.log_number)]
        if meta.log_number != meta.number:
            names.append(index_name(meta.log_number))
        return names
