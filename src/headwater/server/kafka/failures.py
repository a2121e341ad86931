"""From our errors to the numbers Kafka clients know. One total table."""

from __future__ import annotations

from typing import Final

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
from headwater.engine.kafka.errors import KafkaError
from headwater.format.kafka.batch import BatchError, CodecError, CrcError, MagicError
from headwater.wire.kafka.error_codes import ErrorCode

CODES: Final[tuple[tuple[type[HeadwaterError], ErrorCode], ...]] = (
    (MagicError, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    (CodecError, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (CrcError, ErrorCode.CORRUPT_MESSAGE),
    # The client meant it so: unlike CORRUPT_MESSAGE, clients do not try this again.
    (BatchError, ErrorCode.INVALID_RECORD),
    (BatchTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (RecordTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (TopicNotFoundError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    # Not written, and worth another try: the only word for that which producers know.
    (OverloadedError, ErrorCode.NOT_ENOUGH_REPLICAS),
    (DiskFullError, ErrorCode.NOT_ENOUGH_REPLICAS),
    (ClosedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (UnavailableError, ErrorCode.LEADER_NOT_AVAILABLE),
    (DamageError, ErrorCode.CORRUPT_MESSAGE),
    (StorageError, ErrorCode.KAFKA_STORAGE_ERROR),
    (RequestError, ErrorCode.INVALID_REQUEST),
    (HeadwaterError, ErrorCode.UNKNOWN_SERVER_ERROR),
)
"""The first that fits counts."""


def code_of(error: HeadwaterError) -> ErrorCode:
    if isinstance(error, KafkaError):
        return ErrorCode(error.code)
    return next(code for kind, code in CODES if isinstance(error, kind))


def throttle_of(error: HeadwaterError) -> int:
    """How long a client has to wait that was refused for now, in milliseconds."""
    return error.retry_after_ms if isinstance(error, UnavailableError) else 0
