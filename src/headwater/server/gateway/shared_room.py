"""The limit of open connections, where several processes have them."""

from __future__ import annotations

from headwater.server.connection import Room
from headwater.server.gateway_slots import GatewaySlots


class SharedRoom(Room):
    """One limit for the connections of all gateways."""

    def __init__(self, connections_max: int, slots: GatewaySlots, slot: int) -> None:
        super().__init__(connections_max)
        self._slots = slots
        self._slot = slot

    def take(self) -> bool:
        # Counted first: two gateways that take the last place at once may both go without it, and
        # never have it both.
        self._slots.add(self._slot, "connections", 1)
        if self._slots.total("connections") > self.connections_max:
            self.give_back()
            return False
        return True

    def give_back(self) -> None:
        self._slots.add(self._slot, "connections", -1)
