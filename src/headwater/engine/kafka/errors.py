"""Errors that Kafka clients are told by number."""

from __future__ import annotations

from headwater.core.errors import HeadwaterError
from headwater.wire.kafka.error_codes import ErrorCode


class KafkaError(HeadwaterError):
    """Refused; nothing was changed. `code` is the number clients know."""

    code: int  # type: ignore[assignment]  # clients of this protocol know numbers, not words

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
