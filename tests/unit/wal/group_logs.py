"""A second dialect, tiny and in memory, and tickets for it: what the loop needs and no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from headwater.core.durability import Durability
from headwater.wal.ticket import Ticket

FSYNC, DISK, MEMORY = Durability.FSYNC, Durability.DISK, Durability.MEMORY


def ticket(
    body: bytes = b"entry", durability: Durability = FSYNC, *, essential: bool = False
) -> Ticket:
    return Ticket(body, 1, durability, essential=essential)


class ListLog:
    """Implements `GroupLog` with lists. Says what was asked of it, in order."""

    name = "a list"

    def __init__(self) -> None:
        self.groups: list[list[bytes]] = []
        self.synced = 0
        self.events: list[str] = []
        self.failures: dict[str, Exception] = {}
        """Verb -> the error it raises from now on."""
        self.before: Callable[[str], None] = lambda verb: None
        self.changed = threading.Condition()

    def write_group(self, tickets: Sequence[Ticket], *, essential: bool) -> int:
        self._do("essential write" if essential else "write")
        self.groups.append([each.body for each in tickets])
        return sum(len(each.body) for each in tickets)

    def sync(self) -> None:
        self._do("sync")
        self.synced = len(self.groups)

    def witness(self, *, clean_stop: bool) -> None:
        self._do("stop mark" if clean_stop else "idle mark")
        self.synced = len(self.groups)

    def make_room(self) -> None:
        self._do("make room")

    def close(self) -> None:
        self._do("close")

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 10) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, timeout_s), self.events

    def _do(self, verb: str) -> None:
        self.before(verb)
        with self.changed:
            self.events.append(verb)
            self.changed.notify_all()
        if verb in self.failures:
            raise self.failures[verb]
