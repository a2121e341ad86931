"""Settings of one topic: every one of the contract, its default, and how it is refused.

A mistake is answered with one message that names the setting, what was given and what is allowed.
Priorities, leases and jitter are clamped, not refused. Equal settings are one object, so that
100,000 topics with the defaults hold them once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

import msgspec

from headwater.core.durability import Durability
from headwater.core.errors import FormatError, InvalidRequestError, TopicExistsIncompatibleError
from headwater.core.limits import (
    CLAIM_JITTER_MS_CLAMP,
    INTEGER_MAX,
    LEASE_MS_CLAMP,
    NAME_PATTERN,
    PARTITION_NAME_PATTERN,
    PARTITION_PREFIX,
    PRIORITY_CLAMP,
)


class TopicType(Enum):
    LOG = "log"
    QUEUE = "queue"


class Discard(Enum):
    """What a full topic does with the next write."""

    OLD = "old"
    REJECT = "reject"


class FifoKey(Enum):
    """What says which jobs of a queue belong together: of those, one at a time is leased."""

    TAG = "tag"


class TopicSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    type: TopicType = TopicType.LOG
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Discard = Discard.OLD
    durability: Durability = Durability.FSYNC
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False
    fifo_key: FifoKey | None = None
    paused: bool = False

    @property
    def durable(self) -> bool:
        """What answers show beside the class."""
        return self.durability is Durability.FSYNC

    def to_stored(self) -> dict[str, Any]:
        """Plain values for control frames and snapshots: every setting, no alias. All topics with
        these settings share them, so nothing writes to them."""
        return _stored(self)

    def to_wire(self) -> dict[str, Any]:
        """Plain values for answers, with the alias."""
        return {**self.to_stored(), "durable": self.durable}


Choice = TypeVar("Choice", bound=Enum)
Check = Callable[[str, Any], Any]


@lru_cache(maxsize=1_024)
def _stored(settings: TopicSettings) -> dict[str, Any]:
    return {name: _plain(getattr(settings, name)) for name in settings.__struct_fields__}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _refuse(name: str, wanted: str, value: Any) -> InvalidRequestError:
    shown = repr(value)
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return InvalidRequestError(f"{name} must be {wanted}, not {shown}", detail={"setting": name})


def _one_of(choices: type[Choice], name: str, value: Any) -> Choice:
    if isinstance(value, choices):
        return value
    try:
        return choices(value)
    except ValueError as error:
        words = ", ".join(str(choice.value) for choice in choices)
        raise _refuse(name, f"one of {words}", value) from error


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refuse(name, "true or false", value)
    return value


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refuse(name, "a whole number", value)
    return value


def _amount(name: str, value: Any) -> int:
    number = _integer(name, value)
    if not 0 <= number <= INTEGER_MAX:
        raise _refuse(name, f"from 0 to {INTEGER_MAX}", value)
    return number


def _clamped(bounds: tuple[int, int], name: str, value: Any) -> int:
    low, high = bounds
    return min(max(_integer(name, value), low), high)


def _priority(name: str, value: Any) -> int | None:
    return None if value is None else _clamped(PRIORITY_CLAMP, name, value)


def _fifo_key(name: str, value: Any) -> FifoKey | None:
    return None if value is None else _one_of(FifoKey, name, value)


def _topic_or_none(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not NAME_PATTERN.fullmatch(value):
        raise _refuse(name, "the name of a topic, or null", value)
    return value


_CHECKS: Final[dict[str, Check]] = {
    "type": partial(_one_of, TopicType),
    "ttl_ms": _amount,
    "cap_records": _amount,
    "cap_bytes": _amount,
    "discard": partial(_one_of, Discard),
    "durability": partial(_one_of, Durability),
    "durable": _boolean,
    "priority": _priority,
    "auto_priority": _boolean,
    "auto_create": _boolean,
    "idempotency_window_ms": _amount,
    "dedupe_node": _boolean,
    "lease_ms": partial(_clamped, LEASE_MS_CLAMP),
    "claim_jitter_ms": partial(_clamped, CLAIM_JITTER_MS_CLAMP),
    "max_deliveries": _amount,
    "dead_letter": _topic_or_none,
    "leases_durable": _boolean,
    "fifo_key": _fifo_key,
    "paused": _boolean,
}


@lru_cache(maxsize=4096)
def _shared(settings: TopicSettings) -> TopicSettings:
    return settings


DEFAULT_TOPIC_SETTINGS: Final = _shared(TopicSettings())


def check_topic_name(name: object, *, is_new: bool = False) -> str:
    """The name when it may be one; refused otherwise. Some names are never those of new topics."""
    if not isinstance(name, str) or not _is_topic_name(name):
        raise _refuse(
            "topic",
            "1 to 255 letters, digits and . _ : - beginning with a letter or digit",
            name,
        )
    if is_new and name.startswith(PARTITION_PREFIX):
        raise InvalidRequestError(
            f"{name!r} can only be a partition of a Kafka topic, and there is none of that name; "
            "make the topic with a Kafka client"
        )
    return name


def _is_topic_name(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (NAME_PATTERN, PARTITION_NAME_PATTERN))


def may_refuse(settings: TopicSettings) -> bool:
    """Is there a write that such a topic refuses because it is full?"""
    return settings.discard is Discard.REJECT and bool(settings.cap_records or settings.cap_bytes)


def refuse_letters(
    target: str, settings: TopicSettings, queue: str, *, is_exact: bool = False
) -> None:
    """RequestError when a topic with these settings could refuse the dead letters of a queue."""
    if is_exact:
        why = "it is fed by an exactly_once router and takes no other records"
    elif may_refuse(settings):
        why = 'it refuses records when it is full (discard "reject" with a cap)'
    else:
        return
    raise InvalidRequestError(
        f"{target!r} cannot be the dead letter topic of {queue!r}: {why}",
        detail={"setting": "dead_letter", "topic": queue, "dead_letter": target},
    )


def topic_settings(
    given: Mapping[str, Any], base: TopicSettings | None = None, *, topic: str | None = None
) -> TopicSettings:
    """The settings `given` on top of `base`, or of the defaults.

    `topic` is whose settings they are; with it, a dead letter topic that is the topic itself, or
    can never be made, is refused.
    """
    checked: dict[str, Any] = {}
    for name, value in given.items():
        check = _CHECKS.get(name)
        if check is None:
            raise InvalidRequestError(f"there is no setting {name!r}", detail={"setting": name})
        checked[name] = check(name, value)
    durable = checked.pop("durable", None)
    if durable is not None and "durability" not in checked:
        checked["durability"] = Durability.FSYNC if durable else Durability.DISK
    settings = msgspec.structs.replace(base or DEFAULT_TOPIC_SETTINGS, **checked)
    if topic is not None and settings.dead_letter == topic:
        raise _refuse("dead_letter", "another topic", topic)
    letters = checked.get("dead_letter")
    if topic is not None and letters is not None and letters.startswith(PARTITION_PREFIX):
        raise _refuse("dead_letter", "a topic, and no partition of a Kafka topic", letters)
    return _shared(settings)


def stored_settings(stored: Mapping[str, Any]) -> TopicSettings:
    """Settings from a control frame or a snapshot. FormatError when this version cannot know them.

    A setting that is not known came from a newer version; going on without it could mean another
    promise than the one that was given.
    """
    try:
        return _shared(msgspec.convert(dict(stored), TopicSettings))
    except msgspec.ValidationError as error:
        raise FormatError(f"topic settings: {error}") from error


def changed(old: TopicSettings, new: TopicSettings) -> tuple[str, ...]:
    """Names of the settings that differ. A topic's type cannot: that is refused."""
    if old.type is not new.type:
        raise TopicExistsIncompatibleError(
            f"the topic is a {old.type.value} and cannot become a {new.type.value}",
            detail={"reason": "type", "type": old.type.value, "wanted": new.type.value},
        )
    return tuple(
        name for name in TopicSettings.__struct_fields__ if getattr(old, name) != getattr(new, name)
    )
