"""Where records are: ListOffsets, OffsetForLeaderEpoch; and DeleteRecords, which moves that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headwater.core.errors import HeadwaterError
from headwater.server.kafka.endpoint import WaitGroup
from headwater.server.kafka.refusals import code_of, code_of_absent
from headwater.wire.kafka.apis import ErrorCode
from headwater.wire.kafka.fields import NEWEST

if TYPE_CHECKING:
    from headwater.engine.owner import Pending
    from headwater.engine.partition import BatchPartition
    from headwater.server.kafka.endpoint import Call, KafkaEndpoint

LATEST: Final = -1
EARLIEST: Final = -2
NEWEST_TIMESTAMP: Final = -3
SINCE: Final = {LATEST: 1, EARLIEST: 1, NEWEST_TIMESTAMP: 7}
"""The version of ListOffsets that first knows what such a time means. Kafka has more of them, in
versions that we do not speak."""
LEADER_EPOCH: Final = 0
TO_THE_END: Final = -1

Lookup = Callable[[], tuple[int, int] | None]


# -- ListOffsets


def list_offsets(endpoint: KafkaEndpoint, call: Call) -> None:
    """The ends are known; times are looked up in the files, all of a request together."""
    topics: list[dict[str, Any]] = []
    lookups: list[tuple[dict[str, Any], Lookup]] = []
    for requested in call.values["topics"]:
        rows = []
        for each in requested["partitions"]:
            row: dict[str, Any] = {"partition_index": each["partition_index"]}
            rows.append(row)
            partition = endpoint.store.partition(
                call.organisation, requested["name"], each["partition_index"]
            )
            if partition is None:
                row["error_code"] = code_of_absent(
                    endpoint.store, call.organisation, requested["name"]
                )
                continue
            if each["current_leader_epoch"] > LEADER_EPOCH:
                row["error_code"] = ErrorCode.UNKNOWN_LEADER_EPOCH
                continue
            if each["timestamp"] < 0 and SINCE.get(each["timestamp"], NEWEST) > call.version:
                row["error_code"] = ErrorCode.UNSUPPORTED_VERSION
                continue
            try:
                lookup = _list_one(partition, each["timestamp"], row)
            except HeadwaterError as error:
                row["error_code"] = code_of(error)
                continue
            if lookup is not None:
                lookups.append((row, lookup))
        topics.append({"name": requested["name"], "partitions": rows})
    if not lookups:
        call.answer({"topics": topics})
        return
    endpoint.read(call, lambda: _run_lookups(lookups), lambda _: call.answer({"topics": topics}))


def _list_one(partition: BatchPartition, timestamp_ms: int, row: dict[str, Any]) -> Lookup | None:
    if timestamp_ms == LATEST:
        row.update(offset=partition.high_watermark, leader_epoch=LEADER_EPOCH)
    elif timestamp_ms == EARLIEST:
        row.update(offset=partition.log_start_offset, leader_epoch=LEADER_EPOCH)
    elif timestamp_ms == NEWEST_TIMESTAMP:
        return partition.find_newest().read
    else:
        return partition.find_timestamp(timestamp_ms).read
    return None


def _run_lookups(lookups: list[tuple[dict[str, Any], Lookup]]) -> None:
    """Anywhere: touches files only."""
    for row, lookup in lookups:
        try:
            match = lookup()
        except HeadwaterError as error:
            row["error_code"] = code_of(error)
            continue
        if match is not None:  # otherwise everything is older: no offset, as Kafka says it
            row["offset"], row["timestamp"] = match
            row["leader_epoch"] = LEADER_EPOCH


# -- OffsetForLeaderEpoch


def for_leader_epoch(endpoint: KafkaEndpoint, call: Call) -> None:
    """There was only ever one leader: its epoch ends where the log ends."""
    topics = []
    for requested in call.values["topics"]:
        rows = []
        for each in requested["partitions"]:
            partition = endpoint.store.partition(
                call.organisation, requested["topic"], each["partition"]
            )
            row: dict[str, Any] = {"partition": each["partition"], "error_code": ErrorCode.NONE}
            if partition is None:
                row["error_code"] = code_of_absent(
                    endpoint.store, call.organisation, requested["topic"]
                )
            elif each["current_leader_epoch"] > LEADER_EPOCH:
                row["error_code"] = ErrorCode.UNKNOWN_LEADER_EPOCH
            elif each["leader_epoch"] == LEADER_EPOCH:
                row["leader_epoch"] = LEADER_EPOCH
                row["end_offset"] = partition.high_watermark
            rows.append(row)
        topics.append({"topic": requested["topic"], "partitions": rows})
    call.answer({"topics": topics})


# -- DeleteRecords


def delete_records(endpoint: KafkaEndpoint, call: Call) -> None:
    topics: list[dict[str, Any]] = []
    wait_group: WaitGroup[int] = WaitGroup(lambda: call.answer({"topics": topics}))
    for requested in call.values["topics"]:
        rows: list[dict[str, Any]] = []
        topics.append({"name": requested["name"], "partitions": rows})
        for each in requested["partitions"]:
            row: dict[str, Any] = {
                "partition_index": each["partition_index"],
                "low_watermark": -1,
                "error_code": ErrorCode.NONE,
            }
            rows.append(row)
            partition = endpoint.store.partition(
                call.organisation, requested["name"], each["partition_index"]
            )
            if partition is None:
                row["error_code"] = code_of_absent(
                    endpoint.store, call.organisation, requested["name"]
                )
                continue
            before = each["offset"]
            if before == TO_THE_END:
                before = partition.high_watermark
            try:
                pending = partition.delete_records(before)
            except HeadwaterError as error:
                row["error_code"] = code_of(error)
            else:
                wait_group.expect(pending, lambda done, row=row: _deleted(done, row))  # type: ignore[misc]
    wait_group.end()


def _deleted(done: Pending[int], row: dict[str, Any]) -> None:
    if done.error is not None:
        row["error_code"] = code_of(done.error)
    else:
        row["low_watermark"] = done.answer()
