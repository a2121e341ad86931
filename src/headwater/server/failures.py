"""The error that a client gets when its request failed for an unforeseen reason."""

from __future__ import annotations

from typing import Any, Protocol

from headwater.core.errors import HeadwaterError, InvariantError, OverloadedError


class Log(Protocol):
    def error(self, event: str, /, **fields: Any) -> Any: ...


def logged(log: Log, event: str, error: HeadwaterError, **fields: Any) -> HeadwaterError:
    """What the log answered to a write. A mistake of ours behind it is logged."""
    cause = error.__cause__
    if cause is None or not isinstance(error, InvariantError | OverloadedError):
        return error
    return unforeseen(log, event, cause, **fields)


def unforeseen(log: Log, event: str, error: BaseException, **fields: Any) -> HeadwaterError:
    """Log it, and give what to answer. A mistake of ours is logged with where it happened; memory
    that ran out says nothing about the place where it did, and gets one line."""
    if isinstance(error, MemoryError):
        log.error(event, error="out of memory", **fields)
        return OverloadedError(
            "the server has no memory for this request; ask for less at a time, or try again",
            detail={"limit": "memory"},
        )
    log.error(event, error=repr(error), exc_info=error, **fields)
    return InvariantError("something went wrong here; the log has more")
