"""The same error for everything in a request, in the form its answer has.

Kafka has no error of a whole request: each answer says it in its own fields. One row here for each
API, so that a client that is refused, or meets a failure, always gets an error it knows. Which
number each of our errors is stands in one total table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headwater.core.errors import (
    BatchTooLargeError,
    ClosedError,
    DamageError,
    DiskFullError,
    HeadwaterError,
    OverloadedError,
    RecordTooLargeError,
    RequestError,
    StorageError,
    TopicNotFoundError,
    UnavailableError,
)
from headwater.engine.kafka.errors import (
    ConfigError,
    GroupNameError,
    GroupNotEmptyError,
    GroupNotFoundError,
    GroupSubscribedError,
    MemberRefusedError,
    OffsetRangeError,
    PartitionCountError,
    ProducerEpochError,
    RecordsRemovedError,
    SequenceError,
    TopicExistsError,
    TopicNameError,
    TopicPolicyError,
)
from headwater.format.kafka.batch import BatchError, CodecError, CrcError, MagicError
from headwater.model.kafka_group import Refusal
from headwater.wire.kafka.apis import ApiKey, ErrorCode

if TYPE_CHECKING:
    from headwater.engine.kafka.joined_store import JoinedStore


Values = Mapping[str, Any]
Refuse = Callable[[Values, int, str | None], dict[str, Any]]


class KafkaRequestError(RequestError):
    """A request that is refused here, before the engine, with a code of Kafka's own."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


CODES: Final[tuple[tuple[type[HeadwaterError], ErrorCode], ...]] = (
    (MagicError, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    (CodecError, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (CrcError, ErrorCode.CORRUPT_MESSAGE),
    # The client meant it so: unlike CORRUPT_MESSAGE, clients do not try this again.
    (BatchError, ErrorCode.INVALID_RECORD),
    (BatchTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (RecordTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (OffsetRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (TopicNameError, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (TopicExistsError, ErrorCode.TOPIC_ALREADY_EXISTS),
    (TopicPolicyError, ErrorCode.POLICY_VIOLATION),
    (PartitionCountError, ErrorCode.INVALID_PARTITIONS),
    (ConfigError, ErrorCode.INVALID_CONFIG),
    (ProducerEpochError, ErrorCode.INVALID_PRODUCER_EPOCH),
    (SequenceError, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (GroupNameError, ErrorCode.INVALID_GROUP_ID),
    (GroupNotFoundError, ErrorCode.GROUP_ID_NOT_FOUND),
    (GroupNotEmptyError, ErrorCode.NON_EMPTY_GROUP),
    (GroupSubscribedError, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
    (RecordsRemovedError, ErrorCode.OFFSET_NOT_AVAILABLE),
    (TopicNotFoundError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    # Not written, and worth another try: the only word for that which producers know.
    (OverloadedError, ErrorCode.NOT_ENOUGH_REPLICAS),
    (DiskFullError, ErrorCode.NOT_ENOUGH_REPLICAS),
    (ClosedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (UnavailableError, ErrorCode.LEADER_NOT_AVAILABLE),
    # Clients give up, or raise it; most would retry KAFKA_STORAGE_ERROR for ever and tell no one.
    (DamageError, ErrorCode.CORRUPT_MESSAGE),
    (StorageError, ErrorCode.KAFKA_STORAGE_ERROR),
    (RequestError, ErrorCode.INVALID_REQUEST),
    (HeadwaterError, ErrorCode.UNKNOWN_SERVER_ERROR),
)
"""The first that fits counts."""


def code_of(error: HeadwaterError) -> ErrorCode:
    if isinstance(error, KafkaRequestError):
        return error.error_code
    if isinstance(error, MemberRefusedError):
        return code_of_refusal(error.refusal)
    return next(code for kind, code in CODES if isinstance(error, kind))


def code_of_refusal(refusal: Refusal | None) -> ErrorCode:
    """The rules of groups name their refusals as Kafka does."""
    return ErrorCode.NONE if refusal is None else ErrorCode[refusal.name]


def code_of_absent(store: JoinedStore, organisation: int, topic: str) -> ErrorCode:
    """Of a topic or partition that was not found."""
    if store.may_exist(organisation, topic):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def throttle_of(error: HeadwaterError) -> int:
    """How long a client has to wait that was refused for now, in milliseconds."""
    return error.retry_after_ms if isinstance(error, UnavailableError) else 0


def refusal(
    api: ApiKey, values: Values, code: ErrorCode, message: str | None = None
) -> dict[str, Any]:
    return REFUSALS[api](values, int(code), message)


def _plain(_values: Values, code: int, _message: str | None) -> dict[str, Any]:
    return {"error_code": code}


def _with_message(_values: Values, code: int, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "error_message": message}


def _by_partition(
    topics: Iterable[Values], code: int, *, rows: str, index: str, topic: str = "name"
) -> list[dict[str, Any]]:
    """Topics with a row for each partition, as most requests about partitions are answered."""
    return [
        {
            topic: each[topic],
            "partitions": [{index: row[index], "error_code": code} for row in each[rows]],
        }
        for each in topics
    ]


def _produce(values: Values, code: int, message: str | None) -> dict[str, Any]:
    return {
        "responses": [
            {
                "name": topic["name"],
                "partition_responses": [
                    {
                        "index": row["index"],
                        "error_code": code,
                        "base_offset": -1,
                        "error_message": message,
                    }
                    for row in topic["partition_data"]
                ],
            }
            for topic in values["topic_data"]
        ]
    }


def _fetch(values: Values, code: int, _message: str | None) -> dict[str, Any]:
    return {
        "responses": [
            {
                "topic": topic["topic"],
                "partitions": [
                    {
                        "partition_index": row["partition"],
                        "error_code": code,
                        "high_watermark": -1,
                        "records": b"",
                    }
                    for row in topic["partitions"]
                ],
            }
            for topic in values["topics"]
        ]
    }


def _metadata(values: Values, code: int, _message: str | None) -> dict[str, Any]:
    requested = values["topics"] or ()
    return {
        "topics": [
            {"name": topic["name"] or "", "topic_id": topic["topic_id"], "error_code": code}
            for topic in requested
        ]
    }


def _topics(rows: str, index: str, topic: str = "name") -> Refuse:
    def refuse(values: Values, code: int, _message: str | None) -> dict[str, Any]:
        return {
            "topics": _by_partition(values["topics"], code, rows=rows, index=index, topic=topic)
        }

    return refuse


def _offset_fetch(values: Values, code: int, _message: str | None) -> dict[str, Any]:
    groups = [{"group_id": each["group_id"], "error_code": code} for each in values["groups"]]
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                {"partition_index": index, "committed_offset": -1, "error_code": code}
                for index in topic["partition_indexes"]
            ],
        }
        for topic in values["topics"] or ()
    ]
    return {"error_code": code, "topics": topics, "groups": groups}


def _find_coordinator(values: Values, code: int, message: str | None) -> dict[str, Any]:
    keys = values["coordinator_keys"]
    nowhere = {"node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}
    return {**nowhere, "coordinators": [{"key": key, **nowhere} for key in keys]}


def _join(values: Values, code: int, _message: str | None) -> dict[str, Any]:
    return {"error_code": code, "member_id": values["member_id"]}


def _describe_groups(values: Values, code: int, _message: str | None) -> dict[str, Any]:
    return {"groups": [{"group_id": group, "error_code": code} for group in values["groups"]]}


def _delete_groups(values: Values, code: int, _message: str | None) -> dict[str, Any]:
    names = values["groups_names"]
    return {"results": [{"group_id": group, "error_code": code} for group in names]}


def _create_topics(values: Values, code: int, message: str | None) -> dict[str, Any]:
    return {
        "topics": [
            {"name": topic["name"], "error_code": code, "error_message": message}
            for topic in values["topics"]
        ]
    }


def _delete_topics(values: Values, code: int, message: str | None) -> dict[str, Any]:
    requested = [(topic["name"], topic["topic_id"]) for topic in values["topics"]]
    requested += [(name, bytes(16)) for name in values["topic_names"]]
    return {
        "responses": [
            {"name": name, "topic_id": topic_id, "error_code": code, "error_message": message}
            for name, topic_id in requested
        ]
    }


def _create_partitions(values: Values, code: int, message: str | None) -> dict[str, Any]:
    return {
        "results": [
            {"name": topic["name"], "error_code": code, "error_message": message}
            for topic in values["topics"]
        ]
    }


def _resources(answer: str) -> Refuse:
    def refuse(values: Values, code: int, message: str | None) -> dict[str, Any]:
        return {
            answer: [
                {
                    "resource_type": each["resource_type"],
                    "resource_name": each["resource_name"],
                    "error_code": code,
                    "error_message": message,
                }
                for each in values["resources"]
            ]
        }

    return refuse


REFUSALS: Final[dict[ApiKey, Refuse]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _topics("partitions", "partition_index"),
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _topics("partitions", "partition_index"),
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join,
    ApiKey.HEARTBEAT: _plain,
    ApiKey.LEAVE_GROUP: _plain,
    ApiKey.SYNC_GROUP: _plain,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _plain,
    ApiKey.SASL_HANDSHAKE: _plain,
    ApiKey.API_VERSIONS: _plain,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _topics("partitions", "partition_index"),
    ApiKey.INIT_PRODUCER_ID: _plain,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _topics("partitions", "partition", "topic"),
    ApiKey.DESCRIBE_CONFIGS: _resources("results"),
    ApiKey.ALTER_CONFIGS: _resources("responses"),
    ApiKey.SASL_AUTHENTICATE: _with_message,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _resources("responses"),
    ApiKey.OFFSET_DELETE: _plain,
    ApiKey.DESCRIBE_CLUSTER: _with_message,
}
