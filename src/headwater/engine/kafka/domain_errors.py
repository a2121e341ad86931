"""From Kafka's error numbers to the errors of HTTP and the library."""

from __future__ import annotations

from typing import Final

from headwater.core.errors import (
    BatchTooLargeError,
    HeadwaterError,
    InvalidRequestError,
    OverloadedError,
    StorageError,
    TopicNotFoundError,
    UnavailableError,
)
from headwater.engine.kafka.errors import KafkaError
from headwater.wire.kafka.error_codes import ErrorCode

_KINDS: Final[dict[int, type[HeadwaterError]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: TopicNotFoundError,
    ErrorCode.MESSAGE_TOO_LARGE: BatchTooLargeError,
    ErrorCode.RECORD_LIST_TOO_LARGE: BatchTooLargeError,
    ErrorCode.NOT_ENOUGH_REPLICAS: OverloadedError,
    ErrorCode.LEADER_NOT_AVAILABLE: UnavailableError,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: UnavailableError,
    ErrorCode.KAFKA_STORAGE_ERROR: StorageError,
    ErrorCode.CORRUPT_MESSAGE: StorageError,
    ErrorCode.UNKNOWN_SERVER_ERROR: StorageError,
}
"""What is not here is the caller's to change."""


def as_domain_error(error: HeadwaterError) -> HeadwaterError:
    """The same error for the other protocols."""
    if not isinstance(error, KafkaError):
        return error
    return _KINDS.get(int(error.code), InvalidRequestError)(str(error))
