"""Errors that Kafka clients are told by number."""

from __future__ import annotations

from typing import Final

from headwater.core.errors import (
    ClosedError,
    DirectoryInUseError,
    DiskFullError,
    FormatError,
    HeadwaterError,
    OverloadedError,
    RequestError,
    StorageError,
)
from headwater.format.kafka.batch import BatchKindError, CodecError, MagicError
from headwater.wire.kafka.error_codes import ErrorCode


class KafkaError(HeadwaterError):
    """Refused; nothing was changed. `code` is the number clients know."""

    code: int  # type: ignore[assignment]  # clients of this protocol know numbers, not words

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


_CODES: Final[tuple[tuple[type[HeadwaterError], ErrorCode], ...]] = (
    (MagicError, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    (CodecError, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (BatchKindError, ErrorCode.INVALID_RECORD),
    (FormatError, ErrorCode.CORRUPT_MESSAGE),
    (OverloadedError, ErrorCode.REQUEST_TIMED_OUT),  # what every client tries again after
    (ClosedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (DirectoryInUseError, ErrorCode.KAFKA_STORAGE_ERROR),
    (DiskFullError, ErrorCode.KAFKA_STORAGE_ERROR),
    (StorageError, ErrorCode.KAFKA_STORAGE_ERROR),
    (RequestError, ErrorCode.INVALID_REQUEST),
)
"""Most special first."""


def code_of(error: HeadwaterError) -> ErrorCode:
    """The number for any error of ours."""
    if isinstance(error, KafkaError):
        return ErrorCode(error.code)
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR
