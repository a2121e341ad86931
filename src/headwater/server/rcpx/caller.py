"""What a request over RCPX, and the operation that answers it, need of their connection."""

from __future__ import annotations

from typing import Protocol

from headwater.core.errors import HeadwaterError
from headwater.server.access.keys import ApiKey
from headwater.server.access.quotas import Usage
from headwater.server.rcpx.endpoint import RcpxEndpoint
from headwater.wire.rcpx.frame import WireMode


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
