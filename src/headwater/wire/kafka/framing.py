"""Cuts a stream of bytes into requests: four bytes of size, then as many bytes.

The size is checked as soon as it is there. What no client would send (less than a header, more than
the limit; HTTP and TLS read as sizes of hundreds of megabytes) ends the connection before a byte
is set aside for it. Only requests that carry records may be as long as the limit says.
"""

from __future__ import annotations

import struct
from typing import Final

from headwater.wire.kafka.apis import ApiKey, ProtocolError, known_api

SIZE_BYTES: Final = 4
REQUEST_BYTES_MIN: Final = 8
OTHER_REQUEST_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of requests without records. The longest of them name every topic of a machine."""

_START: Final = struct.Struct(">ihh")
"""Size, kind and version."""
_FOREIGN: Final = (
    (b"\x16\x03", "TLS, and this port speaks without"),
    (b"GET ", "HTTP"),
    (b"POST", "HTTP"),
    (b"PUT ", "HTTP"),
    (b"HEAD", "HTTP"),
    (b"OPTI", "HTTP"),
    (b"PRI ", "HTTP/2"),
    (b"SSH-", "SSH"),
)


class FrameReader:
    """The requests in what came over one connection."""

    __slots__ = ("_needed", "_pending", "_unasked_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.raise_limit(limit_bytes)
        self._pending = bytearray()
        self._needed = 0
        """Bytes of the request that has begun, its size included; 0 when that is not known."""

    def raise_limit(self, limit_bytes: int) -> None:
        """When the sender is known it may be a higher one."""
        self.limit_bytes = limit_bytes
        self._unasked_bytes = min(limit_bytes, OTHER_REQUEST_BYTES_MAX)
        """Up to here it does not matter what kind of request it is."""

    @property
    def pending_bytes(self) -> int:
        """Bytes of a request that has not all come yet."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[memoryview]:
        """The requests that are whole now, without their sizes: views that may be kept.

        A request that came in one piece is a view of that piece. One that came in several is put
        together once.
        """
        frames: list[memoryview] = []
        view = memoryview(data)
        if self._pending:
            view = self._go_on(view, frames)
        at, end = 0, len(view)
        while end - at >= _START.size:
            size, _, _ = _START.unpack_from(view, at)
            if REQUEST_BYTES_MIN <= size <= self._unasked_bytes:
                needed = SIZE_BYTES + size
            else:
                needed = self._check(view, at)
            if at + needed > end:
                self._needed = needed
                break
            frames.append(view[at + SIZE_BYTES : at + needed])
            at += needed
        if at < end:
            if end - at >= SIZE_BYTES:
                self._check_size(view, at)
            self._pending += view[at:]
        return frames

    def _go_on(self, view: memoryview, frames: list[memoryview]) -> memoryview:
        """Fill up the request that has begun; what is left of the view."""
        pending = self._pending
        if not self._needed:
            missing = max(_START.size - len(pending), 0)
            pending += view[:missing]
            view = view[missing:]
            if len(pending) >= SIZE_BYTES:
                self._check_size(memoryview(bytes(pending)), 0)
            if len(pending) < _START.size:
                return view
            self._needed = self._check(memoryview(bytes(pending)), 0)
        missing = self._needed - len(pending)
        pending += view[:missing]
        if len(pending) == self._needed:
            frames.append(memoryview(pending).toreadonly()[SIZE_BYTES:])
            self._pending = bytearray()
            self._needed = 0
        return view[missing:]

    def _check_size(self, view: memoryview, at: int) -> int:
        size = int.from_bytes(view[at : at + SIZE_BYTES], "big", signed=True)
        if REQUEST_BYTES_MIN <= size <= self.limit_bytes:
            return size
        start = bytes(view[at : at + SIZE_BYTES])
        for opening, what in _FOREIGN:
            if start.startswith(opening):
                raise ProtocolError(f"these bytes are {what}, not the Kafka protocol")
        raise ProtocolError(
            f"a request of {size} bytes; {REQUEST_BYTES_MIN} to {self.limit_bytes} are taken"
        )

    def _check(self, view: memoryview, at: int) -> int:
        """Bytes of the request that begins here, with its size."""
        size = self._check_size(view, at)
        _, kind, _ = _START.unpack_from(view, at)
        if size > OTHER_REQUEST_BYTES_MAX and known_api(kind) is not ApiKey.PRODUCE:
            raise ProtocolError(
                f"a request of kind {kind} with {size} bytes; {OTHER_REQUEST_BYTES_MAX} are taken"
            )
        return SIZE_BYTES + size
