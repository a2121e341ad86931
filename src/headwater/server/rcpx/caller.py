"""What a request over RCPX, and the operation that answers it, need of their connection; and what
each error is called there. The codes are a closed list: clients know no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from headwater.core.errors import HeadwaterError
from headwater.model.machines.errors import machine_code
from headwater.server.access.keys import ApiKey
from headwater.server.access.quotas import Usage
from headwater.server.rcpx.endpoint import RcpxEndpoint
from headwater.wire.http_errors import HttpError
from headwater.wire.rcpx import RcpxProtocolError, WireMode, failed

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


def failure(request_id: bytes, error: HeadwaterError) -> bytes:
    """The answer to a request that was refused."""
    code, retryable = code_of(error)
    return failed(request_id, code, str(error), retryable=retryable, details=error.detail)


class Result(NamedTuple):
    """A result as JSON, with its offset in the WAL."""

    body: bytes
    wal_offset: int | None = None
    then: Callable[[], None] | None = None
    """Done when it is on its way."""


class RcpxCaller(Protocol):
    endpoint: RcpxEndpoint
    key: ApiKey | None
    """None until AUTH, where keys are needed."""
    usage: Usage
    greeted: bool
    """HELLO was right."""
    granted: set[str]
    """Operations this key was allowed before; a key never changes."""
    under_way: int
    """Requests that are begun and not answered."""
    paused: bool
    is_gone: bool

    @property
    def mode(self) -> WireMode | None: ...

    def greet(self, client_name: str) -> None: ...

    def admit(self, key: ApiKey) -> None: ...

    def change_mode(self, mode: WireMode) -> None: ...

    def say_goodbye(self) -> None: ...

    def ended(self) -> None:
        """What was under way is about to be answered."""

    def answer(self, request_id: bytes, result: bytes, wal_offset: int | None = None) -> None: ...

    def fail(self, request_id: bytes, error: HeadwaterError) -> None: ...

    def broken(self, request_id: bytes, error: Exception) -> None: ...

    def send(self, payload: bytes, flags: int) -> None: ...

    def write(self, messages: bytes) -> None:
        """Messages that are framed already."""
