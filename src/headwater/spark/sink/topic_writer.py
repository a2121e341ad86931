"""What a task does with its rows, and what the driver does with what the tasks did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy
import pyarrow as pa
import pyarrow.ipc

from headwater.core import limits
from headwater.core.clock import Clock, Doorbell
from headwater.core.errors import (
    RequestError,
    TopicNotFoundError,
    UnavailableError,
    WriteUncertainError,
)
from headwater.core.records import Record
from headwater.core.units import MIB
from headwater.spark.sink.chunks import (
    Chunker,
    Mark,
    SinkChunk,
    find_marks,
    row_digests,
    without_mark,
)
from headwater.spark.sink.ledger import CLAIM, DONE, SinkLedger, WriteTask
from headwater.spark.sink.options import SinkOptions
from headwater.spark.sink.rows import RowEncoder, raw_bytes
from headwater.spark.sink.sender import FENCE_MS, ChunkSender, Standing, check_run

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.spark.sink.options import SinkOptions

REPAIR: Final = "mending"
"""In place of a partition's number, in keys and ledgers; the word is part of their format."""
_SEEN_WITHIN_US: Final = 30_000_000
_STEP_US: Final = 50_000
_encode = msgspec.json.Encoder().encode


class BatchRepair:
    """Finishes one batch of one writer in one topic: the driver compares rows and writes what is
    missing.

    The earlier run may have cut the rows otherwise, so neither its keys nor its partitions mean
    anything now. What it wrote is found by the marks in the topic and counted by the digest of each
    row; of the rows that came now, as many of each kind are left out, and the rest is written. That
    the rows of a batch are the same whenever it is run is all that the query must promise.

    Order: wait until the earlier run's tasks have stopped, then see what is under way, then scan.
    """

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


STAGED_BYTES_MAX: Final = 256 * MIB
"""What one task sends to the driver at most, when rows must be compared."""
_STAGED: Final = pa.schema([pa.field("text", pa.string(), nullable=False)])


@dataclass(slots=True)
class TopicPart:
    """What one task did to one topic."""

    claimed_seq: int
    rows: int = 0
    chunks_sent: int = 0
    chunks_skipped: int = 0
    """Chunks that an earlier attempt had written."""
    staged: bytes | None = None
    """Rows for the driver to compare with what an earlier run of the batch has written."""


@dataclass(slots=True)
class TaskPart:
    task: WriteTask
    topics: dict[str, TopicPart] = field(default_factory=dict)


def write_rows(
    client: Client,
    options: SinkOptions,
    task: WriteTask,
    batches: Iterable[pa.RecordBatch],
    clock: Clock,
) -> TaskPart:
    """Everything one task has to write. Topics are claimed when their first row comes."""
    rows = RowEncoder(options.columns, options.topic, task.partition)
    writers: dict[str, TopicWriter] = {}
    for batch in batches:
        for part in rows.texts(batch):
            if not len(part.texts):
                continue
            writer = writers.get(part.topic)
            if writer is None:
                writer = writers[part.topic] = TopicWriter(client, options, part.topic, task, clock)
            writer.add(part.texts)
    return TaskPart(task, {topic: writer.finish() for topic, writer in writers.items()})


class TopicWriter:
    """The rows of one task for one topic: sent, kept for the driver, or known to be there."""

    def __init__(
        self, client: Client, options: SinkOptions, topic: str, task: WriteTask, clock: Clock
    ) -> None:
        self._sender = ChunkSender(
            client, topic, task, clock, durability=options.durability, trust=options.trust
        )
        self._chunker = Chunker(options.batch_records, options.batch_bytes)
        self._standing: Standing = self._sender.begin()
        self._staged: list[Any] = []
        self._staged_bytes = 0
        self._rows = 0

    def add(self, texts: Any) -> None:
        self._rows += len(texts)
        if self._standing.done:
            return
        if self._standing.compare:
            self._stage(texts)
        else:
            self._send(self._chunker.add(texts))

    def finish(self) -> TopicPart:
        self._send(self._chunker.rest())
        sender = self._sender
        compare = self._standing.compare and not self._standing.done
        staged = _packed(self._staged) if compare else None
        return TopicPart(
            self._standing.claimed_seq, self._rows, sender.sent, sender.skipped, staged
        )

    def _send(self, chunks: Iterator[SinkChunk]) -> None:
        for chunk in chunks:
            self._sender.send(chunk)

    def _stage(self, texts: Any) -> None:
        self._staged.append(texts)
        self._staged_bytes += len(raw_bytes(texts))
        if self._staged_bytes > STAGED_BYTES_MAX:
            raise RequestError(
                "an earlier run of this batch has written part of it, and the batch is too large "
                f"to be compared row by row (over {STAGED_BYTES_MAX} bytes in a partition). If its "
                "partitions and their rows are the same whenever it is run, write it with "
                'option("rerun", "trust"); otherwise make batches smaller (maxRecordsPerTrigger)'
            )


def finish_write(
    client: Client,
    options: SinkOptions,
    parts: Iterable[TaskPart],
    clock: Clock,
    *,
    keep_done: bool,
    is_last: bool,
) -> None:
    """All tasks are done: write what they left to the driver, then forget what cannot come back.

    `is_last`: no other batch follows under this name. `keep_done`: but the caller may write the
    same once more, and then learns that it is there.
    """
    by_topic: dict[str, list[tuple[WriteTask, TopicPart]]] = {}
    for part in parts:
        for topic, done in part.topics.items():
            by_topic.setdefault(topic, []).append((part.task, done))
    for topic, of_topic in by_topic.items():
        task = of_topic[0][0]
        staged = [done.staged for _, done in of_topic if done.staged is not None]
        if staged:
            repair = BatchRepair(client, topic, task, clock, options)
            repair.write_missing(text for packed in staged for text in _unpacked(packed))
        ledger = SinkLedger(client, topic, task.writer)
        forget = min(done.claimed_seq for _, done in of_topic)
        if is_last and keep_done:
            forget = ledger.add(DONE, task)
        elif is_last:
            forget = max(entry.seq for entry in ledger.entries()) + 1
        ledger.forget_before(forget)


def _packed(texts: list[Any]) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, _STAGED, options=options) as writer:
        for each in texts:
            writer.write_batch(pa.record_batch([each], schema=_STAGED))
    return bytes(sink.getvalue())


def _unpacked(packed: bytes) -> Iterator[Any]:
    with pa.ipc.open_stream(packed) as reader:
        for batch in reader:
            yield batch.column(0)
