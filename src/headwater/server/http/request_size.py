"""How much of a request has come, compared with the limits while it comes."""

from __future__ import annotations

from typing import Final

from headwater.config.server import LimitSettings
from headwater.wire.http_errors import HttpError

FRAMING_BYTES_PER_BODY_BYTE: Final = 16
"""A body in chunks of one byte needs six."""


class RequestSize:
    __slots__ = ("_header", "_limits", "_raw", "body")

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._header = 0
        self._raw = 0
        self.body = 0

    def begin(self) -> None:
        self._header = self._raw = self.body = 0

    def add_header(self, size: int) -> None:
        self._header += size
        if self._header > self._limits.header_bytes:
            raise _headers_too_long()

    def add_body(self, size: int) -> None:
        self.body += size
        self.expect_body(self.body)

    def expect_body(self, size: int) -> None:
        if size > self._limits.body_bytes:
            raise HttpError(
                "payload_too_large", f"a body has at most {self._limits.body_bytes} bytes"
            )

    def add_raw(self, size: int) -> None:
        """The parser holds back a header until it has all of it, so raw bytes are counted too."""
        self._raw += size
        allowed = self._limits.header_bytes + FRAMING_BYTES_PER_BODY_BYTE * self.body
        if self._raw - self.body > allowed:
            raise _headers_too_long()


def _headers_too_long() -> HttpError:
    return HttpError("headers_too_large", "the request's headers are too long")
