"""Routers: the definition of one, its cursor, and the graph of all routes.

A definition has source, destination, filter and guarantee. The filter and what copies keep can be
changed, for records that come later. The topics and the guarantee cannot: what the copies mean
depends on them, so that is to delete it and make another. Putting the same definition again is no
change.

The cursor says how far a router is, what it leaves in its destination, and where it goes on. Copies
are not in the log. They are in the destination's memory until a checkpoint puts them into segments;
a crash before that takes them, and they are made again from the source. What a router leaves in its
destination for each record it passes depends on its guarantee:

| record at the source | at_least_once | exactly_once |
|---|---|---|
| matches | a copy | a copy |
| does not match, or was deleted | nothing | an empty slot |
| lost (cap, age) before it was copied | a lost slot | a lost slot |

With exactly_once every source seq has exactly one slot in the destination. So the slot of a copy
shows which record it is a copy of, and the head of what survived shows where to go on: a
record is copied once, under the same seq before and after the crash, and a reader of the
destination never meets it twice. The price is a slot for every record that is passed over.

With at_least_once only what matches takes a slot. A mark, made durable in the same checkpoint as
the copies it counts, says how far the source was read; what came after it is copied again, under
seqs that were never used before (I3).

A lost slot becomes a tombstone for readers of the destination, with `source_trim` (I9).

The graph has no cycles unless allowed, and one source for each destination:

- A definition that would close a circle is refused with the way round, from its destination back
  to it, unless it says `allow_cycle`. In a circle every copy counts its hops, and the copy after
  the eighth is not made.
- All routers into a destination have the same source: what is in a destination can then be made
  again from one topic's log, in its order. A router that promises exactly_once is the only one
  into its destination, because there each source seq has one slot.
- A topic that is deleted takes its routers with it, those from it and those into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from headwater.config.topic import check_topic_name
from headwater.core.errors import (
    FormatError,
    InvalidRequestError,
    InvariantError,
    OverloadedError,
    RouterCycleError,
    TopicExistsIncompatibleError,
)
from headwater.core.limits import ROUTER_NAME_PATTERN, ROUTERS_MAX
from headwater.model.match import TagMatcher, parse_match


class Guarantee(Enum):
    AT_LEAST_ONCE = "at_least_once"
    """After a crash some records may be copied again; every record copied has its own seq."""
    EXACTLY_ONCE = "exactly_once"
    """Each source record has one slot in the destination, the same before and after a crash."""


class RouterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: str | None = None
    """A tag, or the beginning of one with a star behind it. None takes everything."""
    allow_cycle: bool = False
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE

    @property
    def matcher(self) -> TagMatcher | None:
        return None if self.filter is None else parse_match(self.filter)

    def to_stored(self) -> dict[str, Any]:
        """Plain values, for the log, for snapshots and for answers."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def may_become(known: RouterSettings, wanted: RouterSettings) -> bool:
    """May a router go on with these settings from where it is? With exactly_once each source seq
    has one slot in the destination, which only one definition determines."""
    return (
        known != wanted
        and (known.source, known.dest) == (wanted.source, wanted.dest)
        and known.guarantee is wanted.guarantee is Guarantee.AT_LEAST_ONCE
    )


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{name} must be true or false, not {value!r}")
    return value


def _filter(_name: str, value: object) -> str | None:
    return None if value is None else str(parse_match(value))


def _guarantee(name: str, value: object) -> Guarantee:
    try:
        return Guarantee(value)
    except ValueError as error:
        words = " or ".join(each.value for each in Guarantee)
        raise InvalidRequestError(f"{name} must be {words}, not {value!r}") from error


def _topic(_name: str, value: object) -> str:
    return check_topic_name(value)


_CHECKS: Final[dict[str, Callable[[str, object], Any]]] = {
    "source": _topic,
    "dest": _topic,
    "preserve_node": _boolean,
    "preserve_tag": _boolean,
    "create_dest": _boolean,
    "filter": _filter,
    "allow_cycle": _boolean,
    "guarantee": _guarantee,
}


def check_router_name(name: object) -> str:
    if not isinstance(name, str) or not ROUTER_NAME_PATTERN.fullmatch(name):
        raise InvalidRequestError(
            "a router's name is 1 to 255 letters, digits and . _ : > - beginning with a letter "
            f"or digit, not {name!r}"
        )
    return name


def router_settings(given: Mapping[str, Any]) -> RouterSettings:
    """A definition as a caller gave it."""
    checked: dict[str, Any] = {}
    for name, value in given.items():
        check = _CHECKS.get(name)
        if check is None:
            raise InvalidRequestError(f"a router has no {name!r}", detail={"setting": name})
        checked[name] = check(name, value)
    for name in ("source", "dest"):
        if name not in checked:
            raise InvalidRequestError(f"a router needs a {name}", detail={"setting": name})
    return RouterSettings(**checked)


def stored_router(stored: Mapping[str, Any]) -> RouterSettings:
    """A definition from the log or a snapshot. FormatError when this version cannot know it."""
    try:
        return msgspec.convert(dict(stored), RouterSettings)
    except msgspec.ValidationError as error:
        raise FormatError(f"router: {error}") from error


class Fate(Enum):
    """What became of a record of the source, as its router meets it."""

    MATCHES = "matches"
    PASSED = "passed"
    """Deleted, or not matched by the filter."""
    LOST = "lost"


class Slot(Enum):
    """What is left in the destination for it."""

    NOTHING = 0
    COPY = 1
    EMPTY = 2
    LOST = 3


_SLOTS: Final[dict[tuple[Guarantee, Fate], Slot]] = {
    (Guarantee.AT_LEAST_ONCE, Fate.MATCHES): Slot.COPY,
    (Guarantee.AT_LEAST_ONCE, Fate.PASSED): Slot.NOTHING,
    (Guarantee.AT_LEAST_ONCE, Fate.LOST): Slot.LOST,
    (Guarantee.EXACTLY_ONCE, Fate.MATCHES): Slot.COPY,
    (Guarantee.EXACTLY_ONCE, Fate.PASSED): Slot.EMPTY,
    (Guarantee.EXACTLY_ONCE, Fate.LOST): Slot.LOST,
}


def slot_for(guarantee: Guarantee, fate: Fate) -> Slot:
    return _SLOTS[guarantee, fate]


class CursorMark(NamedTuple):
    """Durable together: the source was read up to here when the destination ended there."""

    source_seq: int
    dest_seq: int


class Trim(NamedTuple):
    """Records of the source that were lost before they were copied, both ends included."""

    first_seq: int
    last_seq: int

    @property
    def slots(self) -> int:
        """Lost slots they leave in the destination."""
        return self.last_seq - self.first_seq + 1


class RouterCursor:
    """One router: the last source seq it has passed, and what it may rely on after a crash."""

    __slots__ = ("forwarded_total", "guarantee", "held", "mark", "own_writes", "source_seq")

    def __init__(self, guarantee: Guarantee, mark: CursorMark) -> None:
        self.guarantee = guarantee
        self.mark = mark
        self.source_seq = mark.source_seq
        self.forwarded_total = 0
        self.held = False
        """The destination is full and refuses: the cursor waits for room."""
        self.own_writes = 0
        """Records others wrote into the destination since the mark."""

    def next_range(self, source_visible_seq: int, limit: int) -> tuple[int, int] | None:
        """The source seqs to copy next, both ends included; None when there are none."""
        if self.source_seq >= source_visible_seq:
            return None
        return self.source_seq + 1, min(self.source_seq + limit, source_visible_seq)

    def trimmed(self, evict_floor: int) -> Trim | None:
        """What the source lost before this router came to it."""
        if self.source_seq + 1 >= evict_floor:
            return None
        return Trim(self.source_seq + 1, evict_floor - 1)

    def passed(self, upto_seq: int, copies: int) -> None:
        """Everything up to this source seq has its slot in the destination."""
        if upto_seq < self.source_seq:
            raise InvariantError(f"a router at {self.source_seq} cannot go back to {upto_seq}")
        self.source_seq = upto_seq
        self.forwarded_total += copies
        self.held = False

    def hold(self) -> None:
        """The destination refused a copy: it is tried again, and nothing after it before."""
        self.held = True

    def next_mark(self, dest_seq: int) -> CursorMark:
        """The mark for this router in the destination's next checkpoint, up to this seq."""
        return CursorMark(self.source_seq, dest_seq)

    def marked(self, mark: CursorMark) -> None:
        """The checkpoint is durable."""
        self.mark = mark
        self.own_writes = 0

    def resume(self, dest_seq: int, own_writes: int = 0) -> None:
        """After a crash: the destination came back up to this seq, with so many records after the
        mark that were written into it directly and are in the log themselves."""
        slots = dest_seq - self.mark.dest_seq - own_writes
        if slots < 0:
            raise InvariantError(
                f"a destination that ends at {dest_seq} is behind its mark {self.mark.dest_seq}"
            )
        self.own_writes = own_writes
        self.source_seq = self.mark.source_seq
        if self.guarantee is Guarantee.EXACTLY_ONCE:
            self.source_seq += slots


HOPS_MAX: Final = 8
"""How often a record is copied on in a circle, at most."""
_ALONE: Final = Guarantee.EXACTLY_ONCE


class RouterGraph:
    __slots__ = ("_from", "_into", "_limit", "_routers")

    def __init__(self, limit: int = ROUTERS_MAX) -> None:
        self._routers: dict[str, RouterSettings] = {}
        self._from: dict[str, dict[str, str]] = {}
        """For each source its routers, each with where it goes, in the order they were made."""
        self._into: dict[str, dict[str, str]] = {}
        self._limit = limit

    def __len__(self) -> int:
        return len(self._routers)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._routers))

    def get(self, name: str) -> RouterSettings | None:
        return self._routers.get(name)

    def source_of(self, dest: str) -> str | None:
        """The one topic whose records are copied here; None for a topic that is no copy."""
        return next(iter(self._into.get(dest, {}).values()), None)

    def put(self, name: str, wanted: RouterSettings) -> bool:
        """Add a router, or refuse without changing anything. False when it is there already."""
        check_router_name(name)
        known = self._routers.get(name)
        if known == wanted:
            return False
        if known is not None:
            raise TopicExistsIncompatibleError(
                f"router {name!r} is there and copies between other topics, or with another "
                "guarantee; delete it first",
                detail={"reason": "router_differs", "router": name},
            )
        if len(self._routers) >= self._limit:
            raise OverloadedError(
                f"there are {self._limit} routers already; delete some",
                detail={"limit": "routers", "allowed": self._limit},
            )
        if not wanted.allow_cycle:
            self._refuse_circle(wanted)
        self._refuse_fan_in(wanted)
        self.restore(name, wanted)
        return True

    def check_change(self, wanted: RouterSettings) -> None:
        """A router is to go on with these settings: may copies come back to where they are from?"""
        if not wanted.allow_cycle:
            self._refuse_circle(wanted)

    def restore(self, name: str, settings: RouterSettings) -> None:
        """A router that was accepted before."""
        self._routers[name] = settings
        self._from.setdefault(settings.source, {})[name] = settings.dest
        self._into.setdefault(settings.dest, {})[name] = settings.source

    def remove(self, name: str) -> RouterSettings | None:
        settings = self._routers.pop(name, None)
        if settings is not None:
            for ends, topic in ((self._from, settings.source), (self._into, settings.dest)):
                del ends[topic][name]
                if not ends[topic]:
                    del ends[topic]
        return settings

    def _refuse_fan_in(self, wanted: RouterSettings) -> None:
        source = self.source_of(wanted.dest)
        if source is not None and source != wanted.source:
            raise TopicExistsIncompatibleError(
                f"{wanted.dest!r} is fed from {source!r} and takes copies of no other topic",
                detail={"reason": "router_dest_fan_in", "dest": wanted.dest, "source": source},
            )
        others = [self._routers[name] for name in self._into.get(wanted.dest, ())]
        if others and any(each.guarantee is _ALONE for each in (wanted, *others)):
            raise TopicExistsIncompatibleError(
                f"{wanted.dest!r} has a router already; with exactly_once it can have no other",
                detail={"reason": "router_dest_fan_in", "dest": wanted.dest, "source": source},
            )

    def _refuse_circle(self, wanted: RouterSettings) -> None:
        way = self.way(wanted.dest, wanted.source)
        if way is not None:
            path = [wanted.source, *way]
            raise RouterCycleError(
                f"copies would come back to where they are from: {' -> '.join(path)}",
                detail={"path": path},
            )

    def way(self, start: str, end: str) -> list[str] | None:
        """The shortest way copies go from one topic to another, both named; None when none."""
        came_from: dict[str, str | None] = {start: None}
        reached = [start]
        for topic in reached:
            if topic == end:
                way = [topic]
                while (before := came_from[way[-1]]) is not None:
                    way.append(before)
                return way[::-1]
            for after in self._from.get(topic, {}).values():
                if after not in came_from:
                    came_from[after] = topic
                    reached.append(after)
        return None

    def is_in_circle(self, name: str) -> bool:
        """True when a copy made by this router can come back to it: its copies count hops."""
        router = self._routers[name]
        return self.way(router.dest, router.source) is not None


def may_hop(hops: int) -> bool:
    """May a record that was copied this often in a circle be copied once more?"""
    return hops < HOPS_MAX
