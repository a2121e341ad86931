"""What machines refuse, with the codes their clients know, and the same codes for other errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headwater.core.errors import (
    HeadwaterError,
    OverloadedError,
    RequestError,
    StorageError,
    UnavailableError,
)

BAD_REQUEST: Final = "BAD_REQUEST"
NOT_FOUND: Final = "NOT_FOUND"
MACHINE_NOT_FOUND: Final = "MACHINE_NOT_FOUND"
MACHINE_VERSION_EXISTS: Final = "MACHINE_VERSION_EXISTS"
MACHINE_VERSION_LIMIT_EXCEEDED: Final = "MACHINE_VERSION_LIMIT_EXCEEDED"
INSTANCE_NOT_FOUND: Final = "INSTANCE_NOT_FOUND"
INSTANCE_EXISTS: Final = "INSTANCE_EXISTS"
INVALID_TRANSITION: Final = "INVALID_TRANSITION"
GUARD_FAILED: Final = "GUARD_FAILED"
CONFLICT: Final = "CONFLICT"
WAL_IO_ERROR: Final = "WAL_IO_ERROR"
INTERNAL_ERROR: Final = "INTERNAL_ERROR"
RATE_LIMITED: Final = "RATE_LIMITED"

CODES: Final = frozenset(
    (
        BAD_REQUEST, NOT_FOUND, MACHINE_NOT_FOUND, MACHINE_VERSION_EXISTS,
        MACHINE_VERSION_LIMIT_EXCEEDED, INSTANCE_NOT_FOUND, INSTANCE_EXISTS, INVALID_TRANSITION,
        GUARD_FAILED, CONFLICT,
    )
)  # fmt: skip
"""Those a MachineError has; the others stand for errors of another kind."""


class MachineError(RequestError):
    """A request that the rules of machines refuse. Neither an instance nor the log changed."""

    retryable = False

    def __init__(
        self, code: str, message: str, *, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, detail=details)
        self.code = code

    @property
    def details(self) -> Mapping[str, Any]:
        return self.detail or {}


_CODES: Final[tuple[tuple[type[HeadwaterError], str, bool], ...]] = (
    (RequestError, BAD_REQUEST, False),
    (OverloadedError, RATE_LIMITED, True),
    (UnavailableError, WAL_IO_ERROR, True),
    (StorageError, WAL_IO_ERROR, False),
    (HeadwaterError, INTERNAL_ERROR, False),
)


def machine_code(error: HeadwaterError) -> tuple[str, bool]:
    """The code that a client of machines gets, and whether trying again may help."""
    if isinstance(error, MachineError):
        return error.code, error.retryable
    return next((code, again) for kind, code, again in _CODES if isinstance(error, kind))


def bad_request(message: str, **details: object) -> MachineError:
    return MachineError(BAD_REQUEST, message, details=details or None)
