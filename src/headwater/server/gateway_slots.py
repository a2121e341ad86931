"""Memory that all processes of a server share: what each gateway has open, and what it cost.

Each gateway writes its own slot and nothing else; the supervisor clears the slot of one that died.
So no lock is needed: a sum is right, or was a moment ago.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Final

import msgspec

from headwater.format.layout import Field, Layout

GATEWAY_SLOT: Final = Layout(
    "the slot of a gateway",
    (
        Field("pid", "u32", "0 when there is none"),
        Field("connections", "u32", "open ones of all protocols"),
        Field("http_connections", "u32", "those that speak HTTP"),
        Field("starts", "u32", "how often it was started"),
        Field("cpu_us", "u64", "of its process"),
        Field("requests", "u64", "that it forwarded since it was started"),
    ),
)
_SIZE: Final = GATEWAY_SLOT.size
_OFFSETS: Final = dict(GATEWAY_SLOT.offsets())


class GatewayFigures(msgspec.Struct, frozen=True):
    slot: int
    pid: int
    connections: int
    http_connections: int
    starts: int
    cpu_us: int
    requests: int


class GatewaySlots:
    """One for each gateway."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memoryview(memory)

    @staticmethod
    def size_of(gateways: int) -> int:
        return gateways * _SIZE

    @classmethod
    def shared_with_children(cls, gateways: int) -> GatewaySlots:
        """With those that are forked later."""
        return cls(mmap.mmap(-1, cls.size_of(gateways)))

    def __len__(self) -> int:
        return len(self._memory) // _SIZE

    def __iter__(self) -> Iterator[GatewayFigures]:
        for slot in range(len(self)):
            values = GATEWAY_SLOT.unpack(self._memory, slot * _SIZE)
            yield GatewayFigures(slot=slot, **values)

    def add(self, slot: int, name: str, change: int) -> None:
        cell = self._cell(slot, name)
        cell[0] += change

    def set(self, slot: int, name: str, value: int) -> None:
        self._cell(slot, name)[0] = value

    def clear(self, slot: int) -> None:
        """Its gateway is no more. How often one was started stays."""
        for name in _OFFSETS:
            if name != "starts":
                self.set(slot, name, 0)

    def total(self, name: str) -> int:
        return sum(self._cell(slot, name)[0] for slot in range(len(self)))

    def _cell(self, slot: int, name: str) -> memoryview:
        begin = slot * _SIZE + _OFFSETS[name]
        wide = name in ("cpu_us", "requests")
        return self._memory[begin : begin + (8 if wide else 4)].cast("Q" if wide else "I")
