"""Finishing a batch that an earlier run began: the driver compares rows and writes what is missing.

The earlier run may have cut the rows otherwise, so neither its keys nor its partitions mean
anything now. What it wrote is found by the marks in the topic and counted by the digest of each
row; of the rows that came now, as many of each kind are left out, and the rest is written. That the
rows of a batch are the same whenever it is run is all that the query must promise.

Order: wait until the earlier run's tasks have stopped, then see what is under way, then scan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy
import pyarrow as pa

from headwater.core import limits
from headwater.core.clock import Clock, Doorbell
from headwater.core.errors import TopicNotFoundError, UnavailableError, WriteUncertainError
from headwater.core.records import Record
from headwater.spark.sink.chunks import Chunker, Mark, find_marks, row_digests, without_mark
from headwater.spark.sink.ledger import CLAIM, SinkLedger, WriteTask
from headwater.spark.sink.sender import FENCE_MS, ChunkSender, check_run

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.spark.sink.options import SinkOptions

REPAIR: Final = "mending"
"""In place of a partition's number, in keys and ledgers; the word is part of their format."""
_SEEN_WITHIN_US: Final = 30_000_000
_STEP_US: Final = 50_000
_encode = msgspec.json.Encoder().encode


class BatchRepair:
    """Finishes one batch of one writer in one topic."""

    def __init__(
        self, client: Client, topic: str, task: WriteTask, clock: Clock, options: SinkOptions
    ) -> None:
        self._client = client
        self._topic = topic
        self._task = replace(task, partition=f"{REPAIR}-{task.run}")
        self._clock = clock
        self._options = options
        self._ledger = SinkLedger(client, topic, task.writer)

    def write_missing(self, texts: Iterable[Any]) -> int:
        """Write those rows that are not in the topic; gives how many."""
        sender = ChunkSender(
            self._client,
            self._topic,
            self._task,
            self._clock,
            durability=self._options.durability,
            trust=True,
        )
        standing = sender.begin()
        self._wait_for_others(standing.run_ts)
        there = self._rows_there()
        chunker = Chunker(self._options.batch_records, self._options.batch_bytes)
        written = 0
        for rows in texts:
            missing = without(rows, there)
            written += len(missing)
            for chunk in chunker.add(missing):
                sender.send(chunk)
        for chunk in chunker.rest():
            sender.send(chunk)
        return written

    def _wait_for_others(self, run_ts: int) -> None:
        """Tasks of earlier runs see this run in the ledger and stop; give them the time."""
        batch = self._ledger.entries(self._task.batch)
        check_run(self._topic, self._task, batch)
        now_ts = max(entry.ts for entry in batch)
        self._pause((run_ts + FENCE_MS - now_ts) * 1_000)

    def _rows_there(self) -> Counter[int]:
        """What runs of this batch have written, as counts of row digests."""
        claims = [e for e in self._ledger.entries(self._task.batch) if e.kind == CLAIM]
        self._wait_until_seen()
        there: Counter[int] = Counter()
        after = min(entry.head for entry in claims)
        for seq, mark in find_marks(self._client, self._topic, after, self._task.writer):
            if mark.is_of(self._task.writer, self._task.batch):
                there.update(self._digests(seq, mark))
        return there

    def _wait_until_seen(self) -> None:
        """Writes that have their seqs and are not committed yet would be missed by a scan."""
        deadline_us = self._clock.monotonic_us() + _SEEN_WITHIN_US
        seen, assigned = self._heads()
        goal = assigned
        while seen < min(goal, assigned):
            if self._clock.monotonic_us() > deadline_us:
                raise UnavailableError(f"writes to {self._topic} are under way and do not end")
            self._pause(_STEP_US)
            seen, assigned = self._heads()

    def _heads(self) -> tuple[int, int]:
        """The last seq readers see, and the last that was assigned."""
        try:
            state = self._client.state(self._topic)
        except TopicNotFoundError:
            return 0, 0
        return state.head_seq, state.next_seq - 1

    def _digests(self, first_seq: int, mark: Mark) -> Iterator[int]:
        cursor, last = first_seq - 1, first_seq + mark.count - 1
        seen = 0
        while cursor < last:
            diff = self._client.diff(
                self._topic,
                cursor,
                limit=min(limits.READ_RECORDS_CLAMP, last - cursor),
                max_batch_bytes=limits.READ_BYTES_CLAMP,
            )
            records = [record for record in diff.records if record.seq <= last]
            yield from row_digests(pa.array(map(_text, records), pa.string()))
            seen += len(records)
            if diff.next_from_seq <= cursor:
                break
            cursor = diff.next_from_seq
        if seen != mark.count:
            raise WriteUncertainError(
                f"of records {first_seq} to {last} of {self._topic}, written by an earlier run of "
                f"this batch, only {seen} are left, so what is missing cannot be known: nothing "
                "was written. If what was deleted is to stay away, go on with a new checkpoint or "
                "another write id, and start after this batch"
            )

    def _pause(self, time_us: int) -> None:
        if time_us > 0:
            self._clock.wait(Doorbell(), self._clock.monotonic_us() + time_us)


def without(texts: Any, there: Counter[int]) -> Any:
    """The rows that are not there, in their order. Takes what it leaves out off the counts."""
    if not there:
        return texts
    wanted = numpy.ones(len(texts), bool)
    for position, digest in enumerate(row_digests(texts)):
        if there.get(digest):
            there[digest] -= 1
            wanted[position] = False
    return texts.filter(pa.array(wanted))


def _text(record: Record) -> str:
    """The row a record was made of, byte for byte as `rows` writes it."""
    meta = without_mark(record.meta_json)
    parts = ["{"]
    if meta:
        parts += ['"meta":', meta.decode(), ","]
    parts += ['"data":', record.data_json.decode()]
    for name, value in (("tag", record.tag), ("node", record.node)):
        if value is not None:
            parts += [f',"{name}":', _encode(value).decode()]
    return "".join([*parts, "},"])
