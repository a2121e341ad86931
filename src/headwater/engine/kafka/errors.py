"""Errors that Kafka clients are told by number."""

from __future__ import annotations

from headwater.core.errors import HeadwaterError, StorageError
from headwater.wire.kafka.error_codes import ErrorCode


class KafkaError(HeadwaterError):
    """Refused; nothing was changed. `code` is the number clients know."""

    code: int  # type: ignore[assignment]  # clients of this protocol know numbers, not words

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class DamagedError(KafkaError):
    """Records that cannot be read stand where a fetch begins. Clients that are told so give up, or
    tell their program; KAFKA_STORAGE_ERROR most of them try again for ever without a word."""

    def __init__(self, first_offset: int, end_offset: int, where: StorageError) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, str(where))
        self.first_offset = first_offset
        self.end_offset = end_offset
        """The first offset behind them, as far as this read looked."""
