"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups have read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headwater.core.errors import HeadwaterError
from headwater.engine.kafka.group_state import Committed
from headwater.server.kafka.endpoint import WaitGroup
from headwater.server.kafka.refusals import code_of
from headwater.wire.kafka.apis import ErrorCode

if TYPE_CHECKING:
    from headwater.engine.owner import Pending
    from headwater.server.kafka.endpoint import Call, KafkaEndpoint

METADATA_BYTES_MAX: Final = 4096
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1

Row = dict[str, Any]


# -- commit


def commit(endpoint: KafkaEndpoint, call: Call) -> None:
    """Offsets of partitions that are there are stored together; the others say why not."""
    values = call.values
    topics: list[Row] = []
    accepted: list[Row] = []
    offsets: dict[tuple[str, int], Committed] = {}
    now_ms = endpoint.clock.wall_ms()
    for requested in values["topics"]:
        topic = endpoint.store.topic(call.organisation, requested["name"])
        # While a topic is being dropped, too: the offset would outlive it, and meet the next one.
        partitions = 0 if topic is None or topic.dropped else len(topic.partitions)
        topic_epoch = 0 if topic is None else topic.epoch
        rows: list[Row] = []
        topics.append({"name": requested["name"], "partitions": rows})
        for each in requested["partitions"]:
            row: Row = {"partition_index": each["partition_index"], "error_code": ErrorCode.NONE}
            rows.append(row)
            metadata = each["committed_metadata"] or ""
            if not 0 <= each["partition_index"] < partitions:
                row["error_code"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata.encode()) > METADATA_BYTES_MAX:
                row["error_code"] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                accepted.append(row)
                offsets[requested["name"], each["partition_index"]] = Committed(
                    each["committed_offset"],
                    each["committed_leader_epoch"],
                    metadata,
                    now_ms,
                    topic_epoch,
                )

    def end(code: ErrorCode) -> None:
        for row in accepted:
            row["error_code"] = code
        call.answer({"topics": topics})

    if not offsets:
        call.answer({"topics": topics})
        return
    try:
        pending = endpoint.coordinator.commit(
            call.organisation,
            values["group_id"],
            values["member_id"],
            values["generation_id_or_member_epoch"],
            values["group_instance_id"],
            offsets,
        )
    except HeadwaterError as error:
        end(code_of(error))
        return

    def done(resolved: Pending[bool]) -> None:
        end(ErrorCode.NONE if resolved.error is None else code_of(resolved.error))

    wait_group: WaitGroup[bool] = WaitGroup(lambda: None)
    wait_group.expect(pending, done)


# -- fetch


def fetch(endpoint: KafkaEndpoint, call: Call) -> None:
    """One group in old versions, any number from 8 on."""
    values = call.values
    if call.version >= 8:
        groups = [
            {
                "group_id": each["group_id"],
                "topics": _topics(
                    committed_of(endpoint, call.organisation, each["group_id"]), each["topics"]
                ),
            }
            for each in values["groups"]
        ]
        call.answer({"groups": groups})
        return
    committed = committed_of(endpoint, call.organisation, values["group_id"])
    call.answer({"topics": _topics(committed, values["topics"])})


def committed_of(
    endpoint: KafkaEndpoint, organisation: int, group: str
) -> Mapping[tuple[str, int], Committed]:
    """How far a group is, in the topics that have these names now."""
    return {
        spot: known
        for spot, known in endpoint.coordinator.committed(organisation, group).items()
        if (topic := endpoint.store.topic(organisation, spot[0])) is None
        or known.topic_epoch in (0, topic.epoch)
    }


def _topics(
    committed: Mapping[tuple[str, int], Committed], requested: Iterable[Row] | None
) -> list[Row]:
    """All there is when the request names none."""
    if requested is None:
        keys: Iterable[tuple[str, int]] = committed
    else:
        keys = [(each["name"], index) for each in requested for index in each["partition_indexes"]]
    topics: dict[str, list[Row]] = (
        {} if requested is None else {each["name"]: [] for each in requested}
    )
    for topic, index in keys:
        offset = committed.get((topic, index)) or Committed(NO_OFFSET, NO_EPOCH, "", 0)
        topics.setdefault(topic, []).append(
            {
                "partition_index": index,
                "committed_offset": offset.offset,
                "committed_leader_epoch": offset.leader_epoch,
                "metadata": offset.metadata,
                "error_code": ErrorCode.NONE,
            }
        )
    return [{"name": name, "partitions": rows} for name, rows in topics.items()]


# -- delete


def delete(endpoint: KafkaEndpoint, call: Call) -> None:
    """Of partitions that are there and that no member of the group reads; the others say why."""
    values = call.values
    read = endpoint.coordinator.topics_read(call.organisation, values["group_id"])
    topics: list[Row] = []
    accepted: list[Row] = []
    keys: list[tuple[str, int]] = []
    for requested in values["topics"]:
        rows: list[Row] = []
        topics.append({"name": requested["name"], "partitions": rows})
        for each in requested["partitions"]:
            index = each["partition_index"]
            row: Row = {"partition_index": index, "error_code": ErrorCode.NONE}
            rows.append(row)
            if endpoint.store.partition(call.organisation, requested["name"], index) is None:
                row["error_code"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif read is None or requested["name"] in read:
                row["error_code"] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                accepted.append(row)
                keys.append((requested["name"], index))
    if not keys:
        call.answer({"error_code": ErrorCode.NONE, "topics": topics})
        return
    pending = endpoint.coordinator.forget_offsets(call.organisation, values["group_id"], keys)

    def done(resolved: Pending[bool]) -> None:
        for row in accepted:
            row["error_code"] = (
                ErrorCode.NONE if resolved.error is None else code_of(resolved.error)
            )
        call.answer({"error_code": ErrorCode.NONE, "topics": topics})

    wait_group: WaitGroup[bool] = WaitGroup(lambda: None)
    wait_group.expect(pending, done)
