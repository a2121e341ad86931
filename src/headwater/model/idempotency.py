"""Keys of writes that were made lately, so that a write sent twice is made once.

A key is known from the moment its write has seqs: `begin` before the commit, `complete` after it,
`abandon` when it failed. Keys are remembered for a time, restarts included; looking one up never
gives one that has expired, and expired ones leave in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from headwater.core.errors import InvariantError
from headwater.format.control_frames import IdempotencyEntry


class Remembered(NamedTuple):
    first_seq: int
    last_seq: int
    expires_ts: int
    created: bool
    pending: Any = None
    """While the write is not committed: what its sender waits for. A twin may wait for it too."""


class IdempotencyWindow:
    __slots__ = ("_keys", "_pending")

    def __init__(self) -> None:
        self._keys: dict[bytes, IdempotencyEntry] = {}
        self._pending: dict[bytes, Remembered] = {}

    def __len__(self) -> int:
        return len(self._keys) + len(self._pending)

    def begin(
        self,
        key: bytes,
        first_seq: int,
        last_seq: int,
        *,
        created: bool,
        expires_ts: int,
        waiting: Any,
    ) -> None:
        """The write under this key is on its way."""
        if key in self._pending:
            raise InvariantError(f"a write under key {key!r} is already on its way")
        self._pending[key] = Remembered(first_seq, last_seq, expires_ts, created, waiting)

    def complete(self, key: bytes) -> None:
        """The write under this key was committed."""
        self.remember(IdempotencyEntry(key, *self._pending.pop(key)[:4]))

    def abandon(self, key: bytes) -> None:
        """The write under this key failed; the key is free again."""
        self._pending.pop(key, None)

    def remember(self, entry: IdempotencyEntry) -> None:
        # Taken out first, so that the order is the order of coming.
        self._keys.pop(entry.key, None)
        self._keys[entry.key] = entry

    def lookup(self, key: bytes, now_ms: int) -> Remembered | None:
        """The write this key stands for, unless it is forgotten by now."""
        pending = self._pending.get(key)
        if pending is not None:
            return pending
        known = self._keys.get(key)
        if known is None or now_ms >= known.expires_ts:
            return None
        return Remembered(known.first_seq, known.last_seq, known.expires_ts, known.created)

    def expire(self, now_ms: int) -> int:
        """Forget the oldest keys as long as they have expired; gives how many."""
        expired: list[bytes] = []
        for key, known in self._keys.items():
            if now_ms < known.expires_ts:
                break
            expired.append(key)
        for key in expired:
            del self._keys[key]
        return len(expired)

    def shorten(self, latest_ts: int) -> None:
        """No key is to be remembered for longer than this: the wall clock was ahead when it came,
        and was set right, or the window is smaller now. In front of others it would keep them, and
        only the front is checked."""
        oldest = next(iter(self._keys.values()), None)
        if oldest is None or oldest.expires_ts <= latest_ts:
            return
        for key, known in self._keys.items():
            if known.expires_ts > latest_ts:
                self._keys[key] = msgspec.structs.replace(known, expires_ts=latest_ts)

    def entries(self) -> Iterator[IdempotencyEntry]:
        """What a snapshot must keep: committed keys, oldest first."""
        return iter(self._keys.values())
