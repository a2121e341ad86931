"""Instances that were deleted lately, for deletes that come twice.

Bounded: an id that was deleted before many others is no longer known, and deleting it again is
answered as for any id that never was. Not part of snapshots: a start knows of the deletions that
it read from the log.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DELETIONS_MAX: Final = 10_000


class InstanceDeletion(NamedTuple):
    wal_offset: int
    machine: str


class Deletions:
    """The latest of them by id, the oldest first."""

    def __init__(self, count_max: int = DELETIONS_MAX) -> None:
        self._by_id: dict[str, InstanceDeletion] = {}
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, instance_id: str) -> InstanceDeletion | None:
        return self._by_id.get(instance_id)

    def note(self, instance_id: str, deletion: InstanceDeletion) -> None:
        self._by_id.pop(instance_id, None)
        self._by_id[instance_id] = deletion
        if len(self._by_id) > self._count_max:
            del self._by_id[next(iter(self._by_id))]

    def forget(self, instance_id: str) -> None:
        """It was made again."""
        self._by_id.pop(instance_id, None)

    def clear(self) -> None:
        self._by_id.clear()
