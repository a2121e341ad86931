"""Errors with the number that Kafka clients get."""

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
    """A fetch begins at records that cannot be read. Clients give up on this error, or raise it;
    most of them would retry KAFKA_STORAGE_ERROR for ever and report nothing."""

    def __init__(self, first_offset: int, end_offset: int, where: StorageError) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, str(where))
        self.first_offset = first_offset
        self.end_offset = end_offset
        """The first offset behind them, as far as this read went."""
