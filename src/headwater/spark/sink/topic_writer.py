"""What a task does with its rows, and what the driver does with what the tasks did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.ipc

from headwater.core.clock import Clock
from headwater.core.errors import RequestError
from headwater.core.units import MIB
from headwater.spark.sink.batch_repair import BatchRepair
from headwater.spark.sink.chunks import Chunker, SinkChunk
from headwater.spark.sink.ledger import DONE, SinkLedger, WriteTask
from headwater.spark.sink.options import SinkOptions
from headwater.spark.sink.rows import RowEncoder, raw_bytes
from headwater.spark.sink.sender import ChunkSender, Standing

if TYPE_CHECKING:
    from headwater.client import Client

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
