"""A real server whose clock the test can push on, and a sink's task without Spark around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

import headwater
from headwater.api.call_list import Records
from headwater.client import Client, Retry
from headwater.core.clock import Doorbell, SystemClock
from headwater.core.results import Appended
from headwater.core.units import US_PER_MS, US_PER_S
from headwater.spark.sink.ledger import LEDGER_SUFFIX, WriteTask
from headwater.spark.sink.options import SinkOptions, sink_options
from headwater.spark.sink.rows import RowEncoder
from headwater.spark.sink.topic_writer import TaskPart, TopicWriter, finish_write, write_rows
from tests.server.running_server import running

QUICK = Retry(give_up_after_s=5.0, first_delay_s=0.01, longest_delay_s=0.1)
PAYLOADS = pa.schema([("data", pa.string())])


class PushedClock(SystemClock):
    """The machine's time, and as much more as the test has pushed it on. Nobody waits on it."""

    def __init__(self) -> None:
        self.pushed_us = 0

    def push(self, seconds: float) -> None:
        self.pushed_us += int(seconds * US_PER_S)

    def wall_ms(self) -> int:
        return super().wall_ms() + self.pushed_us // US_PER_MS

    def monotonic_us(self) -> int:
        return super().monotonic_us() + self.pushed_us


class SinkClock(PushedClock):
    """The sink's own: a wait is over at once, as far on as it would have been."""

    def __init__(self, server: PushedClock) -> None:
        super().__init__()
        self._server = server
        self.waited_us = 0

    def monotonic_us(self) -> int:
        return self._server.monotonic_us()

    def wait(self, doorbell: Doorbell, until_us: int | None) -> bool:
        assert until_us is not None
        for_us = until_us - self.monotonic_us()
        self.waited_us += for_us
        self._server.push(max(for_us, 0) / US_PER_S)
        return False


class Rig:
    """Tasks and the driver of one sink, called one by one."""

    def __init__(self, url: str, client: Client, clock: PushedClock) -> None:
        self.url = url
        self.client = client
        self.server_clock = clock
        self.clock = SinkClock(clock)

    def options(self, schema: pa.Schema = PAYLOADS, **given: str) -> SinkOptions:
        given = {"url": self.url, "topic": "t", "batchRecords": "10", **given}
        return sink_options(given, from_arrow_schema(schema), overwrite=False)

    def task(
        self,
        options: SinkOptions,
        write_task: WriteTask,
        rows: Sequence[Any],
        portion: int = 7,
        client: Client | None = None,
    ) -> TaskPart:
        """A task with these payloads, handed over in batches of some length."""
        texts = [text_of(row) for row in rows]
        batches = [
            pa.record_batch([pa.array(texts[at : at + portion], pa.string())], schema=PAYLOADS)
            for at in range(0, len(texts), portion)
        ]
        return write_rows(client or self.client, options, write_task, batches, self.clock)

    def topic_writer(self, options: SinkOptions, write_task: WriteTask) -> TopicWriter:
        """A task that has just begun; rows are added with `texts_of`."""
        return TopicWriter(self.client, options, "t", write_task, self.clock)

    def finish(self, options: SinkOptions, *parts: TaskPart, **kind: bool) -> None:
        kind = {"is_last": False, "keep_done": False, **kind}
        finish_write(self.client, options, parts, self.clock, **kind)

    def rows(self, topic: str = "t") -> list[Any]:
        return [record.data for record in self.records(topic)]

    def records(self, topic: str = "t") -> list[headwater.Record]:
        written: list[headwater.Record] = []
        cursor = 0
        while True:
            diff = self.client.diff(topic, cursor, limit=1_000)
            written += diff.records
            cursor = diff.next_from_seq
            if diff.caught_up:
                return written


def text_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def texts_of(options: SinkOptions, rows: Sequence[Any]) -> Any:
    batch = pa.record_batch([pa.array(map(text_of, rows), pa.string())], schema=PAYLOADS)
    return next(RowEncoder(options.columns, "t", "0").texts(batch)).texts


class Died(Exception):
    """The process that was writing is gone."""


class DyingClient(Client):
    """Does so many writes to the topic, then dies: before the next one, or before its answer."""

    def __init__(self, url: str, writes: int, *, lost_answer: bool) -> None:
        super().__init__(url, retry=QUICK)
        self._left = writes
        self._lost_answer = lost_answer

    def append(self, topic: str, records: Records, **options: Any) -> Appended:
        if is_ledger(topic):
            return super().append(topic, records, **options)
        self._left -= 1
        if self._left < 0 and not self._lost_answer:
            raise Died
        answer = super().append(topic, records, **options)
        if self._left < 0:
            raise Died
        return answer


def is_ledger(topic: str) -> bool:
    return topic.endswith(LEDGER_SUFFIX)


def write_task(
    run: str = "run-1", batch: int = 0, partition: int = 0, query: str = "query"
) -> WriteTask:
    return WriteTask("query", query, run, batch, str(partition))


@contextmanager
def rig_on(directory: Path) -> Iterator[Rig]:
    clock = PushedClock()
    with running(directory, clock=clock) as server:
        url = f"http://127.0.0.1:{server.port}"
        with Client(url, retry=QUICK, timeout_s=10.0) as client:
            yield Rig(url, client, clock)
