"""What machines need done by the clock: expiry, forgetting keys, compaction, the next segment."""

from __future__ import annotations

from typing import Final

from headwater.config.machines import MachineSettings
from headwater.core.errors import HeadwaterError
from headwater.engine.machines.book import Book
from headwater.engine.machines.compacting import Compactor
from headwater.engine.machines.requests import DeleteInstance
from headwater.engine.owner import Owner
from headwater.wal.committer import LogState

EXPIRED_PER_ROUND: Final = 1_000


class Keeping:
    def __init__(
        self, book: Book, compactor: Compactor, owner: Owner, settings: MachineSettings
    ) -> None:
        self._book = book
        self._compactor = compactor
        self._owner = owner
        self._settings = settings

    def round(self) -> None:
        """On the keeper's thread."""
        while self._owner.call(self._expire) == EXPIRED_PER_ROUND:
            continue
        if self._owner.call(self._compactor.is_due) and not self._is_poisoned():
            self._compactor.compact()

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
