"""Routers: copies from one topic to another, the graph of routes, and the cursor of each router."""

from headwater.model.router.cursor import CursorMark, Fate, RouterCursor, Slot, slot_for
from headwater.model.router.definition import (
    Guarantee,
    RouterSettings,
    may_become,
    router_settings,
)
from headwater.model.router.graph import HOPS_MAX, RouterGraph

__all__ = [
    "HOPS_MAX",
    "CursorMark",
    "Fate",
    "Guarantee",
    "RouterCursor",
    "RouterGraph",
    "RouterSettings",
    "Slot",
    "may_become",
    "router_settings",
    "slot_for",
]
