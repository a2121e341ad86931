"""Fetch: whole stored batches, at once or when enough has come.

A fetch that finds too little waits on its partitions and on one timer; an update of a partition
only checks that partition again. How much is in files is guessed; a fetch that would wait for that
reads them first, because a guess may be far from what is in one compressed batch. Sessions are not
kept: the answer says session 0, and clients then send all their partitions each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headwater.core.errors import HeadwaterError
from headwater.core.units import MIB
from headwater.format.kafka.batch import COUNT_AT
from headwater.server.kafka.refusals import code_of, code_of_absent
from headwater.wire.kafka.apis import ErrorCode

if TYPE_CHECKING:
    from headwater.engine.partition import BatchPartition, BatchPlan
    from headwater.server.kafka.endpoint import Call, KafkaEndpoint

ANSWER_BYTES_MAX: Final = 55 * MIB
WAIT_MS_MAX: Final = 300_000
LEADER_EPOCH: Final = 0
FIRST_EPOCH, NO_SESSION = 0, -1
"""Of sessions."""


def fetch(endpoint: KafkaEndpoint, call: Call) -> None:
    """A client that begins a session, or wants none, requests everything; no session goes on."""
    if call.values["session_epoch"] not in (FIRST_EPOCH, NO_SESSION):
        call.answer({"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "session_id": 0})
        return
    _Fetch(endpoint, call).run()


class _Row:
    """One partition of the request."""

    __slots__ = (
        "batches",
        "error",
        "partition",
        "partition_bytes",
        "plan",
        "read_bytes",
        "requested",
        "size_bytes",
        "topic",
        "wake",
    )

    def __init__(
        self, topic: str, requested: dict[str, Any], partition: BatchPartition | None
    ) -> None:
        self.topic = topic
        self.requested = requested
        self.partition = partition
        self.plan: BatchPlan | None = None
        self.batches: list[bytes | memoryview] = []
        self.size_bytes = 0
        """Of these batches, or about so many where they are to be read from files."""
        self.read_bytes: int | None = None
        """Bytes in files, when they were read before waiting."""
        self.partition_bytes = 0
        """All of the partition at that time: what it has more since then has come on top."""
        self.error: tuple[ErrorCode, str] | None = None
        self.wake: Callable[[], None] | None = None


class _Fetch:
    def __init__(self, endpoint: KafkaEndpoint, call: Call) -> None:
        self._endpoint = endpoint
        self._call = call
        self._bytes_max = min(max(call.values["max_bytes"], 0), ANSWER_BYTES_MAX)
        self._bytes_left = self._bytes_max
        self._bytes_ready = 0
        self._failed = False
        self._hurried = False
        self._timer: asyncio.TimerHandle | None = None
        find, organisation = endpoint.store.partition, call.organisation
        self._rows = [
            _Row(topic["topic"], each, find(organisation, topic["topic"], each["partition"]))
            for topic in call.values["topics"]
            for each in topic["partitions"]
        ]

    def run(self) -> None:
        for row in self._rows:
            self._plan(row)
        if self._may_answer() or self._call.values["max_wait_ms"] <= 0:
            self._read()
        elif self._needs_files:
            self._call.hurry = self._hasten
            self._endpoint.read(self._call, self._read_files, self._count_read)
        else:
            self._wait()

    def _may_answer(self) -> bool:
        return self._is_enough or self._hurried or self._endpoint.connections.is_draining

    @property
    def _needs_files(self) -> bool:
        return any(row.plan is not None and row.plan.needs_files for row in self._rows)

    def _hasten(self) -> None:
        self._hurried = True

    def _count_read(self, _: None) -> None:
        """The files were read: now it is known whether that is enough."""
        read = [row for row in self._rows if row.plan is not None and row.plan.needs_files]
        for row in read:
            row.read_bytes = sum(map(len, row.batches))
            row.partition_bytes = 0 if row.partition is None else row.partition.bytes
            self._set_size(row, row.read_bytes)
            self._failed = self._failed or row.error is not None
        if self._call.connection.is_gone:
            return
        if self._may_answer():
            self._answer()
            return
        for row in read:
            row.batches = []  # a fetch that waits holds no files
        for row in self._rows:
            self._plan(row)  # something may have come meanwhile
        if self._may_answer():
            self._read()
        else:
            self._wait()

    def _wait(self) -> None:
        wait_ms = min(self._call.values["max_wait_ms"], WAIT_MS_MAX)
        self._call.hurry = self._give_up
        self._timer = self._endpoint.loop.call_later(wait_ms / 1000, self._give_up)
        for row in self._rows:
            self._await(row)

    @property
    def _is_enough(self) -> bool:
        if self._failed or not self._rows:
            return True
        return bool(self._bytes_ready >= self._call.values["min_bytes"])

    # -- planning

    def _plan(self, row: _Row) -> None:
        """What this partition has, as far as the answer has room."""
        partition = row.partition
        if partition is None or partition.topic.dropped:
            # A topic may be deleted while we wait: its reader gets the error then, not later.
            row.partition, row.plan, row.batches = None, None, []
            code = code_of_absent(self._endpoint.store, self._call.organisation, row.topic)
            self._fail(row, code, "there is no such partition")
            return
        if row.requested["current_leader_epoch"] > LEADER_EPOCH:
            self._fail(row, ErrorCode.UNKNOWN_LEADER_EPOCH, "there was only ever one leader")
            return
        # What it had before, while it waited, is planned again.
        left = self._bytes_left + row.size_bytes
        room = min(max(row.requested["partition_max_bytes"], 0), left)
        if self._bytes_ready > row.size_bytes and room <= 0:
            return
        try:
            plan = partition.plan_fetch(row.requested["fetch_offset"], room)
            plan.skips_damaged = self._endpoint.settings.kafka_skip_damaged
        except HeadwaterError as error:
            self._fail(row, code_of(error), str(error))
            return
        row.plan = plan
        if not plan.needs_files:
            row.batches = plan.read()
            self._set_size(row, sum(map(len, row.batches)))
        elif row.read_bytes is None:
            self._set_size(
                row, min(room, _expected_bytes(partition, row.requested["fetch_offset"]))
            )
        else:
            self._set_size(row, row.read_bytes + max(partition.bytes - row.partition_bytes, 0))

    def _set_size(self, row: _Row, size: int) -> None:
        more = size - row.size_bytes
        row.size_bytes = size
        self._bytes_ready += more
        self._bytes_left -= more

    def _fail(self, row: _Row, code: ErrorCode, message: str) -> None:
        row.error = (code, message)
        self._failed = True

    # -- waiting

    def _await(self, row: _Row) -> None:
        if row.partition is None:
            return

        partition = row.partition

        def wake() -> None:
            if row.wake is None:
                return
            self._plan(row)
            if self._is_enough:
                self._give_up()
            else:
                partition.waiters.add(wake)  # a waiter is called once

        row.wake = wake
        partition.waiters.add(wake)

    def _give_up(self) -> None:
        """Enough is there, or it has taken long enough, or the client is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._call.hurry = None
        for row in self._rows:
            if row.wake is not None and row.partition is not None:
                row.partition.waiters.discard(row.wake)
                row.wake = None
        if not self._call.connection.is_gone:
            self._read()

    # -- answering

    def _read(self) -> None:
        if self._needs_files:
            self._endpoint.read(self._call, self._read_files, self._answer)
        else:
            self._answer()

    def _read_files(self) -> None:
        """Anywhere. Damage fails its partition and no other."""
        for row in self._rows:
            if row.plan is not None and row.plan.needs_files:
                try:
                    row.batches = row.plan.read()
                except HeadwaterError as error:
                    row.error = (code_of(error), str(error))

    def _fit(self) -> None:
        """Leave out what the answer has no room for.

        Every partition found one batch at least, however long; only the first of them may be
        longer than the answer, so that a client with little room gets on all the same.
        """
        total = 0
        for row in self._rows:
            for at, batch in enumerate(row.batches):
                if total and total + len(batch) > self._bytes_max:
                    row.batches = row.batches[:at]
                    break
                total += len(batch)

    def _answer(self, _: None = None) -> None:
        self._fit()
        topics: dict[str, list[dict[str, Any]]] = {}
        for row in self._rows:
            topics.setdefault(row.topic, []).append(self._answer_row(row))
        self._call.answer(
            {
                "throttle_time_ms": 0,
                "error_code": ErrorCode.NONE,
                "responses": [{"topic": name, "partitions": rows} for name, rows in topics.items()],
            }
        )

    def _answer_row(self, row: _Row) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "partition_index": row.requested["partition"],
            "high_watermark": -1,
            "aborted_transactions": None,
            "records": row.batches or b"",
        }
        if row.partition is not None:
            high = row.partition.high_watermark if row.plan is None else row.plan.high_watermark
            answer["high_watermark"] = answer["last_stable_offset"] = high
            answer["log_start_offset"] = row.partition.log_start_offset
        if row.error is not None:
            answer["error_code"], answer["records"] = row.error[0], b""
            if row.error[0] is ErrorCode.KAFKA_STORAGE_ERROR:
                self._endpoint.log.error("a Kafka read failed", topic=row.topic, error=row.error[1])
        else:
            self._endpoint.counters.records_out += sum(map(record_count, row.batches))
        return answer


def record_count(batch: bytes | memoryview) -> int:
    return int.from_bytes(batch[COUNT_AT : COUNT_AT + 4], "big")


def _expected_bytes(partition: BatchPartition, offset: int) -> int:
    """About how much there is from here on, without reading."""
    records = partition.high_watermark - partition.log_start_offset
    wanted = partition.high_watermark - offset
    return partition.bytes * wanted // records if records else 0
