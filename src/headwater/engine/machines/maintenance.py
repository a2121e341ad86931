"""Periodic work of machines: expiry, forgetting keys, compaction, deleting old files."""

from __future__ import annotations

from typing import Final

from headwater.api.machine_requests import DeleteInstance
from headwater.config.machines import MachineSettings
from headwater.core.clock import Clock
from headwater.core.errors import HeadwaterError
from headwater.core.units import US_PER_MS
from headwater.engine.machines.book import Book
from headwater.engine.machines.compactor import Compactor
from headwater.engine.machines.snapshots import SnapshotFiles
from headwater.engine.owner import Owner
from headwater.wal.committer import LogState

EXPIRED_PER_ROUND: Final = 1_000
PRUNE_INTERVAL_MS: Final = 60_000


class MachineMaintenance:
    def __init__(
        self,
        book: Book,
        compactor: Compactor,
        files: SnapshotFiles,
        owner: Owner,
        clock: Clock,
        settings: MachineSettings,
    ) -> None:
        self._book = book
        self._compactor = compactor
        self._files = files
        self._owner = owner
        self._clock = clock
        self._pruned_us: int | None = None
        self._settings = settings

    def round(self) -> None:
        """On the maintenance thread."""
        while self._owner.call(self._expire) == EXPIRED_PER_ROUND:
            continue
        if self._owner.call(self._compactor.is_due) and not self._is_poisoned():
            self._compactor.compact()
        self._prune()

    def _prune(self) -> None:
        """Snapshots of single instances that are too old or too many."""
        now_us = self._clock.monotonic_us()
        last_us = self._pruned_us
        if last_us is not None and now_us - last_us < PRUNE_INTERVAL_MS * US_PER_MS:
            return
        self._pruned_us = now_us
        settings = self._settings
        age_ms = settings.instance_snapshots_age_ms
        before_ms = self._owner.call(self._book.now_ms) - age_ms if age_ms else 0
        self._files.prune_instances(settings.instance_snapshots_max, before_ms)

    def _is_poisoned(self) -> bool:
        """A full disk is no reason to wait: compaction makes room."""
        return self._book.shard is None or self._book.shard.state is LogState.POISONED

    def _expire(self) -> int:
        book = self._book
        now_ms = book.now_ms()
        book.tables.forget_keys(now_ms - self._settings.idempotency_window_ms)
        names = book.tables.expired(now_ms, EXPIRED_PER_ROUND)
        for index, name in enumerate(names):
            try:
                book.submit([DeleteInstance(name, reason="ttl")], essential=True)
            except HeadwaterError:  # full, or many writes under way: the next round tries again
                for left in names[index:]:
                    book.tables.expire_again(left)
                return 0
        return len(names)
