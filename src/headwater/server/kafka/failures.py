"""From our errors to the numbers Kafka clients know. One total table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
from headwater.wire.kafka.error_codes import ErrorCode

if TYPE_CHECKING:
    from headwater.engine.kafka.joined_store import JoinedStore


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
