"""`df.write.format("headwater")` and `writeStream`: rows become records of a topic, exactly once.

Executors turn record batches into JSON and send them to the server in chunks. Each chunk has a key
made of the writer (query id, app id or write id), the batch, the partition and its number. How that
holds over retries, speculation, dead drivers and restarts of the server is explained in
`headwater.spark.sink.sender`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headwater.core.clock import SystemClock
from headwater.core.errors import HeadwaterError
from headwater.spark.runtime.task_context import micro_batch, task_context
from headwater.spark.sink.options import SinkOptions, sink_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headwater.client import Client
    from headwater.spark.sink.ledger import WriteTask
    from headwater.spark.sink.topic_writer import TaskPart


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of `df.write`: made once on the driver and sent to every task."""
    return TopicBatchWriter(sink_options(options, schema, overwrite=overwrite))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of `df.writeStream`: made on the driver for every run of a micro-batch."""
    return StreamWriter(sink_options(options, schema, overwrite=overwrite))


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    part: TaskPart


class TopicBatchWriter(DataSourceArrowWriter):
    """A batch write is batch 0 of a writer that is named by its write id."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = uuid.uuid4().hex
        self._writer = options.write_id or self._run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        try:
            return _write(self._options, _task(self._writer, "", self._run, 0), iterator)
        except HeadwaterError as error:
            error.add_note(
                f"The id of this write is {self._writer}: to finish it without doubling what is "
                f'there, write the same rows again with option("writeId", "{self._writer}").'
            )
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _finish(self._options, messages, is_last=True)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query, batch = micro_batch()
        task = _task(self._options.app_id or query, query, self._run, batch)
        return _write(self._options, task, iterator)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - the name Spark calls it by
    ) -> None:
        _finish(self._options, messages, is_last=False)


def _write(
    options: SinkOptions, task: WriteTask, iterator: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    from headwater.spark.sink.topic_writer import write_rows

    with _client(options) as client:
        return TaskDone(write_rows(client, options, task, iterator, SystemClock()))


def _finish(
    options: SinkOptions, messages: Sequence[WriterCommitMessage | None], *, is_last: bool
) -> None:
    from headwater.spark.sink.topic_writer import finish_write

    parts = [message.part for message in messages if isinstance(message, TaskDone)]
    keep_done = options.write_id is not None
    with _client(options) as client:
        finish_write(client, options, parts, SystemClock(), keep_done=keep_done, is_last=is_last)


def _client(options: SinkOptions) -> Client:
    from headwater.client import Client, Retry
    from headwater.spark.sink.sender import GIVE_UP_S, TIMEOUT_S

    return Client(
        options.url,
        token=options.token,
        timeout_s=TIMEOUT_S,
        retry=Retry(give_up_after_s=GIVE_UP_S),
    )


def _task(writer: str, query: str, run: str, batch: int) -> WriteTask:
    from headwater.spark.sink.ledger import WriteTask

    context = task_context()
    return WriteTask(writer, query, run, batch, str(context.partitionId()))
