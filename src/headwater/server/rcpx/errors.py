"""What each error is called in RCPX. The codes are a closed list: clients know no others."""

from __future__ import annotations

from typing import Final

from headwater.core.errors import HeadwaterError
from headwater.model.machines.errors import machine_code
from headwater.wire.http_errors import HttpError
from headwater.wire.rcpx.envelope import error_object
from headwater.wire.rcpx.frame import RcpxProtocolError

OF_ACCESS: Final[dict[str, tuple[str, bool]]] = {
    "unauthorized": ("UNAUTHORIZED", False),
    "forbidden": ("UNAUTHORIZED", False),
    "throttled": ("RATE_LIMITED", True),
    "not_ready": ("INTERNAL_ERROR", True),
    "shutting_down": ("INTERNAL_ERROR", True),
    "not_found": ("NOT_FOUND", False),
}
"""What the server itself refuses, by the code it has everywhere else."""


def code_of(error: HeadwaterError) -> tuple[str, bool]:
    """The code, and whether trying again may help."""
    if isinstance(error, RcpxProtocolError):
        return error.code, False
    if isinstance(error, HttpError):
        return OF_ACCESS.get(error.code, ("BAD_REQUEST", False))
    return OF_ACCESS.get(error.code) or machine_code(error)


def error_json(error: HeadwaterError) -> bytes:
    code, retryable = code_of(error)
    return error_object(code, str(error), retryable=retryable, details=error.detail)
