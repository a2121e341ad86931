"""What a reader asks for: every option of the source, checked once, before anything is read.

Spark hands options over as text under lower-case names, together with some of its own. Whatever
is not known here and not Spark's is refused by name: a misspelt `startingSeq` must not read a
whole topic.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from headwater.config.topic import check_topic_name
from headwater.core.errors import RequestError
from headwater.core.limits import INTEGER_MAX
from headwater.core.units import MIB

US_PER_S: Final = 1_000_000
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


class Payload(Enum):
    """What the column `data` is."""

    STRING = "string"
    BINARY = "binary"
    VARIANT = "variant"


class Invalid(Enum):
    """What becomes of a record whose payload is not what `fields` says."""

    FAIL = "fail"
    NULL = "null"
    COLUMN = "column"


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin in a topic: a seq, the earliest there is, or behind the last there is."""

    seq: int | None = None
    latest: bool = False


@dataclass(frozen=True, slots=True)
class SourceOptions:
    path: str | None = field(default=None, repr=False)
    cold: str | None = field(default=None, repr=False)
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    organisation: int = 1
    """Whose partitions of Kafka topics; a server knows it by the token."""
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    starting: Start = Start()
    starting_by_topic: Mapping[str, Start] = field(default_factory=dict)
    ending: int | None = None
    ending_by_topic: Mapping[str, int] = field(default_factory=dict)
    starting_us: int | None = None
    ending_us: int | None = None
    records_per_trigger_max: int | None = None
    fail_on_data_loss: bool = True
    verify: bool = True
    fields: str | None = None
    fields_column: str | None = None
    invalid: Invalid = Invalid.FAIL
    payload: Payload = Payload.STRING
    partition_rows_max: int = 1_000_000
    partition_bytes_max: int = 64 * MIB

    def start_of(self, topic: str) -> Start:
        return self.starting_by_topic.get(topic, self.starting)

    def end_of(self, topic: str) -> int | None:
        """The last seq that is wanted; None for all there are."""
        return self.ending_by_topic.get(topic, self.ending)

    def wants(self, topic: str) -> bool:
        """True for a topic that was named, or whose name fits the pattern."""
        if self.topic_pattern is not None:
            return re.fullmatch(self.topic_pattern, topic) is not None
        return topic in self.topics


Choice = TypeVar("Choice", bound=Enum)
Read = Callable[[str, str], Any]


def refuse(option: str, wanted: str, given: object) -> RequestError:
    shown = repr(given)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return RequestError(f"option {option} must be {wanted}, not {shown}", detail={"option": option})


def _text(option: str, value: str) -> str:
    if not value.strip():
        raise refuse(option, "a text that is not empty", value)
    return value.strip()


def _location(option: str, value: str) -> str:
    """A directory, or a tier's address. Executors have working directories of their own: what is
    relative is so to where the query is planned."""
    location = _text(option, value)
    return location if "://" in location else os.path.abspath(location)


def _boolean(option: str, value: str) -> bool:
    words = {"true": True, "false": False}
    if value.strip().lower() not in words:
        raise refuse(option, "true or false", value)
    return words[value.strip().lower()]


def _number(option: str, value: str, least: int) -> int:
    try:
        number = int(value.strip())
    except ValueError as error:
        raise refuse(option, "a whole number", value) from error
    if not least <= number <= INTEGER_MAX:
        raise refuse(option, f"from {least} to {INTEGER_MAX}", value)
    return number


def _count(option: str, value: str) -> int:
    return _number(option, value, 1)


def _topic(option: str, value: str) -> tuple[str, ...]:
    return (_checked_name(option, value.strip()),)


def _topics(option: str, value: str) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")]
    return tuple(sorted({_checked_name(option, name) for name in names}))


def _checked_name(option: str, name: str) -> str:
    try:
        return check_topic_name(name)
    except RequestError as error:
        raise RequestError(f"option {option}: {error}", detail={"option": option}) from error


def _pattern(option: str, value: str) -> str:
    try:
        re.compile(_text(option, value))
    except re.error as error:
        raise refuse(option, f"a regular expression ({error})", value) from error
    return value.strip()


def _start(option: str, value: str) -> Start:
    word = value.strip().lower()
    if word == EARLIEST:
        return Start()
    if word == LATEST:
        return Start(latest=True)
    return Start(_number(option, value, 1))


def _end(option: str, value: str) -> int | None:
    return None if value.strip().lower() == LATEST else _number(option, value, 0)


def _by_topic(option: str, value: str, read: Callable[[str, str], Any]) -> dict[str, Any]:
    """The form for several topics: {"orders": 12, "clicks": "earliest"}."""
    try:
        given = msgspec.json.decode(value, type=dict[str, int | str])
    except msgspec.MsgspecError as error:
        wanted = 'a seq, or one for each topic as in {"orders": 12}'
        raise refuse(option, wanted, value) from error
    return {_checked_name(option, name): read(option, str(seq)) for name, seq in given.items()}


def _time_us(option: str, value: str) -> int:
    """Milliseconds since 1970, or a time as people write it; without a zone it is UTC."""
    text = value.strip()
    if re.fullmatch(r"-?\d+", text):
        return _number(option, text, 0) * 1_000
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        wanted = "milliseconds since 1970 or a time like 2026-01-31T12:00:00Z"
        raise refuse(option, wanted, value) from error
    return microseconds(when)


def microseconds(when: datetime) -> int:
    """Exactly; a time without a zone is taken as UTC."""
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    passed = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (passed.days * 86_400 + passed.seconds) * US_PER_S + passed.microseconds


def _one_of(choices: type[Choice]) -> Callable[[str, str], Choice]:
    def read(option: str, value: str) -> Choice:
        try:
            return choices(value.strip().lower())
        except ValueError as error:
            words = ", ".join(str(choice.value) for choice in choices)
            raise refuse(option, f"one of {words}", value) from error

    return read


# option as people write it -> (field, how it is read)
OPTIONS: Final[dict[str, tuple[str, Read]]] = {
    "path": ("path", _location),
    "cold": ("cold", _location),
    "url": ("url", _text),
    "token": ("token", _text),
    "organisation": ("organisation", _count),
    "topic": ("topics", _topic),
    "topics": ("topics", _topics),
    "topicPattern": ("topic_pattern", _pattern),
    "startingSeq": ("starting", _start),
    "endingSeq": ("ending", _end),
    "startingTimestamp": ("starting_us", _time_us),
    "endingTimestamp": ("ending_us", _time_us),
    "maxRecordsPerTrigger": ("records_per_trigger_max", _count),
    "failOnDataLoss": ("fail_on_data_loss", _boolean),
    "verify": ("verify", _boolean),
    "fields": ("fields", _text),
    "fieldsColumn": ("fields_column", _text),
    "invalid": ("invalid", _one_of(Invalid)),
    "payload": ("payload", _one_of(Payload)),
    "rowsPerPartition": ("partition_rows_max", _count),
    "bytesPerPartition": ("partition_bytes_max", _count),
}
_SPELLING: Final = {option.lower(): option for option in OPTIONS}
_BY_TOPIC: Final = {"startingSeq": "starting_by_topic", "endingSeq": "ending_by_topic"}

# What Spark itself adds or understands for every format; none of our business.
_SPARKS_OWN: Final = frozenset(
    (
        "checkpointlocation",
        "querytimeout",
        "schema",
        "datetimerebasemode",
        "timezone",
        "mergeschema",
    )
)
_SPARKS_START: Final = ("spark.", "__")


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a reader. A RequestError names the option and says what it should be."""
    values: dict[str, Any] = {}
    for key, value in given.items():
        option = _SPELLING.get(key.lower())
        if option is None:
            if key.lower() in _SPARKS_OWN or key.lower().startswith(_SPARKS_START):
                continue
            raise _unknown(key)
        name, read = OPTIONS[option]
        if option in _BY_TOPIC and value.lstrip().startswith("{"):
            values[_BY_TOPIC[option]] = _by_topic(option, value, read)
        else:
            values[name] = read(option, value)
    _check_together({_SPELLING.get(key.lower(), key) for key in given})
    options = SourceOptions(**values)
    _check_locations(options)
    return options


def _check_locations(options: SourceOptions) -> None:
    """A name that was misspelt would be read from its beginning, perhaps a second time."""
    for option, name in _BY_TOPIC.items():
        for topic in getattr(options, name):
            if not options.wants(topic):
                raise RequestError(
                    f"option {option} names {topic!r}, which is not among the topics that are read",
                    detail={"option": option},
                )


def _unknown(key: str) -> RequestError:
    import difflib

    near = difflib.get_close_matches(key.lower(), _SPELLING, 1, 0.75)
    hint = f"; did you mean {_SPELLING[near[0]]}?" if near else ""
    return RequestError(
        f"there is no option {key!r}{hint} Options are: {', '.join(sorted(OPTIONS))}",
        detail={"option": key},
    )


def _check_together(given: set[str]) -> None:
    locations = given & {"path", "url"}
    if len(locations) != 1:
        raise RequestError(
            "name what to read with one of the options path (a data directory or a cold tier) "
            f"and url (a server); {'both were' if locations else 'neither was'} given"
        )
    chosen = given & {"topic", "topics", "topicPattern"}
    if len(chosen) != 1:
        words = " and ".join(sorted(chosen)) if chosen else "none of them"
        raise RequestError(
            f"choose topics with one of the options topic, topics and topicPattern, not {words}"
        )
    for option, other in (
        ("token", "url"),
        ("cold", "path"),
        ("organisation", "path"),
        ("fieldsColumn", "fields"),
    ):
        if option in given and other not in given:
            raise RequestError(f"option {option} goes with {other}, which was not given")
    for option, other in (("startingSeq", "startingTimestamp"),):
        if option in given and other in given:
            raise RequestError(f"options {option} and {other} both say where to begin; give one")
