"""The definition of a router: source, destination, filter and guarantee.

The filter and what copies keep can be changed, for records that come later. The topics and the
guarantee cannot: what the copies mean depends on them, so that is to delete it and make another.
Putting the same definition again is no change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from headwater.config.topic import check_topic_name
from headwater.core.errors import FormatError, InvalidRequestError
from headwater.core.limits import ROUTER_NAME_PATTERN
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
