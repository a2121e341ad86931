"""The ledger of a topic: who is writing what into it, kept by the server beside the topic.

It is a topic of its own, `NAME.sink`, of class fsync and without limits, so that what it says holds
for as long as a driver may be away. Before a task writes its first record it writes a claim; the
claim of the first attempt says where the head was, so that later attempts know where to scan for
what an earlier one left. Claims of batches that can no longer come back are deleted.

| kind | written by | says |
|---|---|---|
| claim | a task, before its first record | this attempt writes that partition of that batch |
| differs | a task that found other rows than its own under its key | from here on, compare rows |
| done | the driver, after a batch write with an id of its own | that write is complete |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headwater.core import limits
from headwater.core.errors import TopicNotFoundError
from headwater.core.records import Record

if TYPE_CHECKING:
    from headwater.client import Client

LEDGER_SUFFIX: Final = ".sink"
CLAIM: Final = "claim"
DIFFERS: Final = "differs"
DONE: Final = "done"


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Whose work it is: everything that is the same in every record of one task's claim."""

    writer: str
    """The id of the query, the app id, or the id of a batch write."""
    query: str
    """The query's own id, which its checkpoint keeps; empty for batch writes."""
    run: str
    """One execution of a batch: the same for all its tasks and their retries."""
    batch: int
    partition: str

    @property
    def tag(self) -> str:
        return f"{self.writer}/{self.batch}/{self.partition}"


class LedgerEntry(msgspec.Struct, frozen=True):
    """One record of the ledger."""

    kind: str
    query: str
    run: str
    batch: int
    partition: str
    head: int
    """The head of the topic before anything was written for this claim."""
    seq: int = 0
    ts: int = 0


_GIVEN: Final = ("seq", "ts")
_entries = msgspec.json.Decoder(LedgerEntry)


class SinkLedger:
    def __init__(self, client: Client, topic: str, writer: str) -> None:
        self._client = client
        self._writer = writer
        self.name = ledger_name(topic)

    def add(self, kind: str, task: WriteTask, head: int = 0) -> int:
        """Write an entry; gives its seq."""
        entry = LedgerEntry(kind, task.query, task.run, task.batch, task.partition, head)
        data = {
            key: value for key, value in msgspec.to_builtins(entry).items() if key not in _GIVEN
        }
        record: dict[str, Any] = {"data": data, "tag": task.tag}
        written = self._client.append(self.name, record, settings={"durability": "fsync"})
        return written.first_seq

    def entries(self, batch: int | None = None) -> list[LedgerEntry]:
        """The entries of this writer, oldest first: of one batch, or all."""
        entries: list[LedgerEntry] = []
        cursor = 0
        only = "" if batch is None else f"{batch}/"
        match = ["tag", "Glob", f"{self._writer}/{only}*"]
        while True:
            try:
                diff = self._client.diff(
                    self.name, cursor, match=match, limit=limits.READ_RECORDS_CLAMP
                )
            except TopicNotFoundError:
                return entries
            entries += map(_entry, diff.records)
            cursor = diff.next_from_seq
            if diff.caught_up:
                return entries

    def forget_before(self, seq: int) -> None:
        """Delete this writer's entries below a seq."""
        self._client.delete(self.name, before_seq=seq, match=["tag", "Glob", f"{self._writer}/*"])


def ledger_name(topic: str) -> str:
    return topic + LEDGER_SUFFIX


def of_batch(entries: Sequence[LedgerEntry], batch: int) -> list[LedgerEntry]:
    return [entry for entry in entries if entry.batch == batch]


def _entry(record: Record) -> LedgerEntry:
    entry = _entries.decode(record.data_json)
    return msgspec.structs.replace(entry, seq=record.seq, ts=record.ts)
