"""One family of errors; each branch answers the question "whose move is it?".

| branch | whose move | what helps |
|---|---|---|
| RequestError | the caller's | send something else |
| UnavailableError | none for now | try again after `retry_after_ms` |
| StorageError | the operator's | inspect `path` and `offset`, follow `advice` |
| InvariantError | ours | report it |

A message is one line: what happened, where, and what to do. `code` is for programs: it
never changes for a kind of error, whatever the message says. `detail` has the facts in the
message, by name, where there are any.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, ClassVar


class HeadwaterError(Exception):
    """Base of every error this package raises on purpose."""

    exit_code = 1
    code = "internal"
    detail: Mapping[str, Any] | None = None


class RequestError(HeadwaterError):
    """The caller asked for something that cannot be done; nothing was changed."""

    exit_code = 2
    code = "invalid_request"

    def __init__(self, message: str, *, detail: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.detail = detail


class InvalidRequestError(RequestError):
    """A value that is not what it should be."""


class BatchTooLargeError(RequestError):
    """More records in one write than are taken at once."""

    code = "batch_too_large"


class RecordTooLargeError(RequestError):
    """One record, or one part of it, is over its limit."""

    code = "record_too_large"


class TopicNotFoundError(RequestError):
    """No topic has this name."""

    code = "topic_not_found"


class TopicExistsIncompatibleError(RequestError):
    """There is such a topic, and it cannot become what was asked for."""

    code = "topic_exists_incompatible"


class TopicNotEmptyError(RequestError):
    """The topic was to be dropped only if it had no records."""

    code = "topic_not_empty"


class TopicFullError(RequestError):
    """The topic is at its cap and refuses instead of evicting. No seq was taken."""

    code = "topic_full"


class HeadConflictError(RequestError):
    """Another client wrote first: the head is not where the caller expected it."""

    code = "head_conflict"


class NotAQueueError(RequestError):
    """A queue verb was used on a log topic."""

    code = "not_a_queue"


class InvalidPayloadError(RequestError):
    """A record's payload is not what a reader said it would be."""


class RouterNotFoundError(RequestError):
    """No router has this name."""

    code = "router_not_found"


class RouterCycleError(RequestError):
    """Copies would come back to the topic they are from. `detail` has the path."""

    code = "router_cycle"


class WriteUncertainError(RequestError):
    """It is unknown whether records were written before, so they are not written again."""

    code = "write_uncertain"


class RowsDifferError(RequestError):
    """Another attempt at a write had other rows, and has written some of them."""

    code = "rows_differ"


class StaleWriterError(RequestError):
    """A writer that another one has replaced, or that has been further before."""

    code = "stale_writer"


class UnavailableError(HeadwaterError):
    """Not now: the same call may work later, unchanged."""

    exit_code = 3
    code = "not_ready"

    def __init__(
        self,
        message: str,
        retry_after_ms: int = 1_000,
        *,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms
        self.detail = detail


class OverloadedError(UnavailableError):
    """A bounded queue is full. Nothing of the refused write was kept."""

    code = "throttled"


class DiskFullError(UnavailableError):
    """There is no room. Reading, deleting and acknowledging go on; writing resumes by itself."""

    code = "disk_full"


class ClosedError(UnavailableError):
    """The log was closed or is closing."""

    code = "shutting_down"


class DirectoryInUseError(UnavailableError):
    """Another process owns the data directory."""

    exit_code = 4


class StorageError(HeadwaterError):
    """The disk or a file on it needs an operator. Carries where, and what to do."""

    exit_code = 5
    code = "storage_failed"
    usual_advice: ClassVar[str | None] = None
    """Where none is given."""

    def __init__(
        self,
        what: str,
        *,
        path: PurePath | str | None = None,
        offset: int | None = None,
        advice: str | None = None,
    ) -> None:
        self.what = what
        self.path = path
        self.offset = offset
        self.advice = advice or self.usual_advice
        super().__init__(self._message())

    def _message(self) -> str:
        where = "" if self.path is None else f" in {self.path}"
        if self.offset is not None:
            where += f" at byte {self.offset}"
        then = "" if self.advice is None else f"; {self.advice}"
        return f"{self.what}{where}{then}"


class DamageError(StorageError):
    """Bytes that were known to be on stable storage are not what was written."""


class ForeignFileError(StorageError):
    """A file that is not ours, or not where it belongs."""


class NewerFormatError(StorageError):
    """A file written by a newer version of this software."""

    usual_advice = "use the version of Headwater that wrote it"


class PoisonedError(StorageError):
    """A write or sync failed earlier; this log acknowledges nothing until a restart."""


class SyncError(StorageError):
    """The kernel could not make bytes or names durable. Never retried: it might say yes and lie."""


class AccessError(StorageError):
    """The operating system refuses a path."""


class ColdTierUnknownError(StorageError):
    """Records are in a cold tier, and the caller named none."""


class DataLossError(StorageError):
    """Records that a reader asked for are gone, by retention or a crash. The message names them."""


class FormatError(HeadwaterError):
    """Bytes that cannot be read as what they should be. Raised by `format` only.

    The one error hostile bytes can cause; callers turn it into a verdict with file and offset.
    """

    def __init__(self, reason: str, offset: int = 0) -> None:
        super().__init__(f"{reason} (at {offset})")
        self.reason = reason
        self.offset = offset


class InvariantError(HeadwaterError):
    """A promise of this code was broken by this code."""

    exit_code = 70
