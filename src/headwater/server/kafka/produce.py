"""Produce and InitProducerId. Batches are checked whole and stored as they came."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headwater.core.durability import Durability
from headwater.core.errors import HeadwaterError
from headwater.format.kafka.batch import check_batch, split_batches
from headwater.server.kafka.endpoint import WaitGroup
from headwater.server.kafka.refusals import code_of, code_of_absent, throttle_of
from headwater.wire.kafka.apis import ErrorCode

if TYPE_CHECKING:
    from headwater.engine.kafka.joined_store import JoinedStore
    from headwater.engine.owner import Pending
    from headwater.engine.partition import BatchPartition, Produced
    from headwater.format.kafka.batch import BatchHeader
    from headwater.server.kafka.endpoint import Call, KafkaEndpoint

ALL: Final = -1
NO_ACK: Final = 0
DURABILITY: Final = {ALL: Durability.FSYNC, 1: Durability.DISK, NO_ACK: Durability.DISK}
NO_OFFSET: Final = -1


def produce(endpoint: KafkaEndpoint, call: Call) -> None:
    values = call.values
    durability = DURABILITY.get(values["acks"])
    if durability is None:
        call.refuse(ErrorCode.INVALID_REQUIRED_ACKS)
    elif values["transactional_id"] is not None:
        call.refuse(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported"
        )
    else:
        _Produce(endpoint, call, durability).run()


class _Produce:
    """One request: rows of partitions, each answered when its batches are in the log."""

    def __init__(self, endpoint: KafkaEndpoint, call: Call, durability: Durability) -> None:
        self._endpoint = endpoint
        self._call = call
        self._durability = durability
        self._answers: list[dict[str, Any]] = []
        self._failure = ""
        """Why something was not stored, of the first that was not."""
        self._dropped = False
        self._throttle_ms = 0
        """How long the client has to wait, where something was refused for now."""
        self._wait_group: WaitGroup[Produced] = WaitGroup(self._finish)

    def run(self) -> None:
        store, organisation = self._endpoint.store, self._call.organisation
        for requested in self._call.values["topic_data"]:
            rows = []
            for each in requested["partition_data"]:
                row: dict[str, Any] = {"index": each["index"], "error_code": 0}
                rows.append(row)
                partition = store.partition(organisation, requested["name"], each["index"])
                if partition is None:
                    code = code_of_absent(store, organisation, requested["name"])
                    self._fail(row, code, _why(store, requested, row))
                    continue
                try:
                    self._append(partition, each, row)
                except HeadwaterError as error:
                    self._refuse(row, error)
            self._answers.append({"name": requested["name"], "partition_responses": rows})
        if self._call.values["acks"] == NO_ACK:
            self._call.answer_nothing()
            self._hang_up_on_failure()
        self._wait_group.end()

    def _append(
        self, partition: BatchPartition, requested: dict[str, Any], row: dict[str, Any]
    ) -> None:
        records = requested["records"]
        if not records:
            row["base_offset"] = partition.high_watermark
            return
        if "header" in requested:  # a plain one, and checked
            checked = [(records, requested["header"])]
        else:
            checked = [(batch, check_batch(batch)) for batch in split_batches(records)]
        for batch, header in checked:
            pending = self._endpoint.append(partition, batch, self._durability, header)
            self._wait_group.expect(pending, partial(self._take, row, header))

    def _take(self, row: dict[str, Any], header: BatchHeader, done: Pending[Produced]) -> None:
        if done.error is not None:
            self._refuse(row, done.error)
            return
        produced = done.answer()
        self._endpoint.count_stored(produced, header)
        if "base_offset" not in row:  # of several batches, the first says where they begin
            row["base_offset"] = produced.base_offset
            row["log_append_time_ms"] = produced.append_time_ms
            row["log_start_offset"] = produced.log_start_offset

    def _refuse(self, row: dict[str, Any], error: HeadwaterError) -> None:
        self._throttle_ms = max(self._throttle_ms, throttle_of(error))
        self._fail(row, code_of(error), str(error))

    def _fail(self, row: dict[str, Any], code: ErrorCode, message: str) -> None:
        row.update(error_code=code, base_offset=NO_OFFSET, error_message=message)
        self._failure = self._failure or f"{code.name}: {message}"

    def _finish(self) -> None:
        if self._call.values["acks"] == NO_ACK:
            self._hang_up_on_failure()
        else:
            self._call.answer({"responses": self._answers, "throttle_time_ms": self._throttle_ms})

    def _hang_up_on_failure(self) -> None:
        """At once, so that nothing behind it is begun; or when the log has refused something."""
        if self._failure and not self._dropped:
            self._dropped = True
            self._endpoint.dropped(self._call.connection, self._failure)


def _why(store: JoinedStore, requested: dict[str, Any], row: dict[str, Any]) -> str:
    if store.unavailable is not None:
        return str(store.unavailable.error())
    return f"there is no partition {requested['name']}/{row['index']}"


def init_producer_id(endpoint: KafkaEndpoint, call: Call) -> None:
    """Idempotent producers get an id of their own each time; epochs begin at 0."""
    if call.values["transactional_id"] is not None:
        call.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return

    def made(pending: Pending[int]) -> None:
        if pending.error is not None:
            call.refuse(code_of(pending.error))
        else:
            call.answer({"producer_id": pending.answer(), "producer_epoch": 0})

    wait_group: WaitGroup[int] = WaitGroup(lambda: None)
    wait_group.expect(endpoint.store.new_producer_id(), made)
