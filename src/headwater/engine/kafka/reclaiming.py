"""Space back: segments without a live record are deleted, mostly dead ones are rewritten.

The checkpoint speaks first. It no longer lists a segment before its files go; it knows what a
segment will be before its index is swapped. So a crash at any point leaves files that are merely
too many, and the next start removes them (I7).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec

from headwater.disk import sync_names
from headwater.engine.kafka.checkpointing import Checkpointing
from headwater.engine.kafka.core import KafkaCore
from headwater.format.kafka.checkpoint import SegmentMeta
from headwater.format.kafka.names import index_name, log_name
from headwater.store.kafka.living import Living, find_living, keys_in
from headwater.store.kafka.rewriting import swap_index, write_living

_NONE_LIVES = 2**63


class Reclaiming:
    """The keeper's. Nothing here is called as the owner."""

    def __init__(
        self, core: KafkaCore, checkpointing: Checkpointing, take_number: Callable[[], int]
    ) -> None:
        self._core = core
        self._checkpointing = checkpointing
        self._take_number = take_number

    def run(self) -> None:
        core = self._core
        core.owner.call(self._begin)
        checkpoint = self._checkpointing.run()
        doomed: list[SegmentMeta] = []
        rewritten: list[tuple[SegmentMeta, Living]] = []
        for meta in checkpoint.segments[:-1]:
            if meta.base_id + meta.entries > checkpoint.as_of:
                continue
            living = self._look(meta)
            if not living.live.any():
                doomed.append(meta)
            elif living.dead_ratio > core.settings.rewrite_dead_ratio:
                rewritten.append((meta, living))
        if doomed:
            self._delete(doomed)
        for meta, living in rewritten:
            self._rewrite(meta, living)

    def _begin(self) -> None:
        self._core.removed_records = False

    def _look(self, meta: SegmentMeta) -> Living:
        core = self._core
        entries = core.files.entries(meta.number, meta.entries)
        keys = keys_in(entries)
        first_live = core.owner.call(lambda: self._first_live(keys))
        return find_living(entries, meta.base_id, first_live)

    def _first_live(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """As the owner: the first global id of each key that somebody may still read.

        None of what the log said about itself: the checkpoint has it. And whatever was removed
        since the partition's bytes were counted waits for the next round, with its sizes.
        """
        found: dict[bytes, int] = dict.fromkeys(keys, _NONE_LIVES)
        for key in keys:
            partition = self._core.registry.by_key(key)
            if partition is not None and partition.sized_from < partition.high_watermark:
                found[key] = partition.id_at(partition.sized_from)
        return found

    def _delete(self, doomed: Sequence[SegmentMeta]) -> None:
        core = self._core
        numbers = {meta.number for meta in doomed}
        keys = {
            key for meta in doomed for key in keys_in(core.files.entries(meta.number, meta.entries))
        }
        core.owner.call(lambda: self._forget(doomed, keys))
        self._checkpointing.run()
        names = [index_name(number) for number in numbers]
        for meta in doomed:
            names += self._log_names(meta)
        self._unlink(names)
        for meta in doomed:
            core.files.forget(meta.number)
            core.files.forget(meta.log_number)
        core.counters.segments_deleted += len(doomed)

    def _forget(self, doomed: Sequence[SegmentMeta], keys: set[bytes]) -> None:
        """As the owner: the segments are no longer there, nor the records they had."""
        core = self._core
        for key in keys:
            partition = core.registry.by_key(key)
            if partition is None or partition.ids is None:
                continue
            for meta in doomed:
                end = meta.base_id + meta.entries
                partition.dropped += partition.ids.range_cardinality(meta.base_id, end)
                partition.ids.remove_range(meta.base_id, end)
            core.changed(partition.topic)
        numbers = {meta.number for meta in doomed}
        left = [meta for meta in core.sealed if meta.number not in numbers]
        core.set_segments(left, core.active_number, core.active_base_id)

    def _rewrite(self, meta: SegmentMeta, living: Living) -> None:
        core = self._core
        number = self._take_number()
        log = core.files.log(meta.log_number, meta.log_bytes)
        rewrite = write_living(core.disk, core.directory, meta.number, number, log, living)
        self._replace(meta, msgspec.structs.replace(meta, rewrite=rewrite))
        self._checkpointing.run()
        swap_index(core.disk, core.directory, meta.number)
        core.files.forget(meta.number)
        done = msgspec.structs.replace(
            meta,
            checksum=rewrite.checksum,
            log_number=rewrite.log_number,
            log_bytes=rewrite.log_bytes,
            rewrite=None,
        )
        self._replace(meta, done)
        self._checkpointing.run()
        self._unlink(self._log_names(meta))
        core.files.forget(meta.log_number)
        core.counters.segments_rewritten += 1

    def _replace(self, old: SegmentMeta, new: SegmentMeta) -> None:
        """Other facts about one segment; where its ids are does not change."""
        core = self._core

        def work() -> None:
            core.sealed = [new if meta.number == old.number else meta for meta in core.sealed]

        core.owner.call(work)

    def _log_names(self, meta: SegmentMeta) -> list[str]:
        """The log of a segment; with the empty index of its own that a rewrite gave it."""
        names = [log_name(meta.log_number)]
        if meta.log_number != meta.number:
            names.append(index_name(meta.log_number))
        return names

    def _unlink(self, names: Sequence[str]) -> None:
        core = self._core
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                core.disk.unlink(core.directory / name)
        sync_names(core.disk, core.directory)
