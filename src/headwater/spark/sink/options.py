"""The options of the sink, checked once on the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.config.topic import check_topic_name
from headwater.core import limits
from headwater.core.durability import Durability
from headwater.core.errors import InvalidRequestError
from headwater.core.units import MIB

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OPTIONS: Final = (
    "url",
    "token",
    "topic",
    "durability",
    "batchRecords",
    "batchBytes",
    "writeId",
    "appId",
    "rerun",
)
SPARKS_OWN: Final = frozenset(
    ("checkpointlocation", "path", "queryname", "querytimeout", "recoverfromcheckpointlocation")
)
"""What Spark hands over together with the options of a writer."""
TOPIC_COLUMN: Final = "topic"
ENVELOPE: Final = frozenset(("data", "tag", "node", "meta"))
GIVEN_ANEW: Final = frozenset(("seq", "ts", "gap"))
"""What the server gives every record anew: beside `data`, such columns are left out."""
WRITER_BYTES_MAX: Final = 160
"""A writer's name is part of tags and keys, which have at most 256 bytes."""
COMPARE: Final = "compare"
TRUST: Final = "trust"
BATCH_BYTES_DEFAULT: Final = 8 * MIB
BATCH_BYTES_MAX: Final = 32 * MIB


@dataclass(frozen=True, slots=True)
class SinkOptions:
    url: str
    token: str | None
    topic: str | None
    """None: each row names its topic in a column."""
    durability: str | None
    """The class of topics the sink creates, and demanded of those that are there."""
    batch_records: int
    batch_bytes: int
    write_id: str | None
    app_id: str | None
    trust: bool
    """A run that follows another of the same batch has the same rows in the same partitions."""
    columns: SinkColumns


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Which column of a row becomes what."""

    topic: str | None
    data: str | None
    """None: `fields` become the data, as a JSON object."""
    tag: str | None
    node: str | None
    meta: str | None
    gap: str | None
    """Set in rows of the source that stand for lost records: no record is made of them."""
    fields: tuple[str, ...]


def sink_options(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> SinkOptions:
    """The options of a write, or an error that names the option and what to write instead."""
    _check_names(given)
    if overwrite:
        raise InvalidRequestError(
            'a topic can only be appended to: write with mode("append"), or drop the topic first'
        )
    if given.get("path"):
        raise InvalidRequestError(
            "a data directory has one owner, so executors cannot write to a path: start the "
            'server on it (headwater serve) and give its address as option("url", ...)'
        )
    url = given.get("url")
    if not url:
        raise InvalidRequestError(
            'say which server to write to: option("url", "http://HOST:4000"), with a token '
            "where keys are wanted"
        )
    topic = given.get("topic")
    names = schema.fieldNames()
    if topic is None and TOPIC_COLUMN not in names:
        raise InvalidRequestError('name the topic: option("topic", NAME), or have a column "topic"')
    durability = given.get("durability")
    if durability is not None and durability not in {each.value for each in Durability}:
        words = ", ".join(each.value for each in Durability)
        raise InvalidRequestError(f"durability is one of {words}, not {durability!r}")
    return SinkOptions(
        url=url,
        token=given.get("token"),
        topic=None if topic is None else check_sink_topic(topic),
        durability=durability,
        batch_records=_whole_number(
            given, "batchRecords", limits.BATCH_RECORDS_MAX, limits.BATCH_RECORDS_MAX
        ),
        batch_bytes=_whole_number(given, "batchBytes", BATCH_BYTES_DEFAULT, BATCH_BYTES_MAX),
        write_id=_name(given, "writeId"),
        app_id=_name(given, "appId"),
        trust=_rerun(given) == TRUST,
        columns=_columns(schema, topic_given=topic is not None),
    )


def check_sink_topic(name: str) -> str:
    """A name the sink can write to: one whose keys a server remembers over a restart."""
    if name.startswith(limits.PARTITION_PREFIX):
        raise InvalidRequestError(
            f"{name} is a partition of a Kafka topic, where this sink cannot keep that every row "
            "is there once: a server forgets the keys of writes to partitions when it restarts, so "
            "a chunk whose answer was lost would be there twice. Write to a log topic, which Kafka "
            "clients read as well (docs/protocols.md)"
        )
    return check_topic_name(name)


def _check_names(given: Mapping[str, str]) -> None:
    """A misspelt option must not be left out in silence: `writeID` would write twice."""
    known = {option.lower() for option in OPTIONS} | SPARKS_OWN
    for option in given:
        if option.lower() not in known and not option.lower().startswith("spark."):
            raise InvalidRequestError(
                f"there is no option {option!r} for writing; options are {', '.join(OPTIONS)}"
            )


def _columns(schema: StructType, *, topic_given: bool) -> SinkColumns:
    names = schema.fieldNames()
    has: Callable[[str], str | None] = lambda name: name if name in names else None  # noqa: E731
    topic = None if topic_given else TOPIC_COLUMN
    if "data" in names:
        known = {*ENVELOPE, *GIVEN_ANEW, TOPIC_COLUMN}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InvalidRequestError(
                f"beside the column data there are others a record has no place for: "
                f"{', '.join(unknown)}; drop them, or drop data and all columns become it"
            )
        fields: tuple[str, ...] = ()
    else:
        fields = tuple(name for name in names if name not in {"tag", "node", "meta", topic})
    gap = has("gap") if "data" in names else None
    return SinkColumns(topic, has("data"), has("tag"), has("node"), has("meta"), gap, fields)


def _whole_number(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.strip().isdigit() or not 1 <= int(text) <= most:
        raise InvalidRequestError(f"{name} is a whole number from 1 to {most}, not {text!r}")
    return int(text)


def _rerun(given: Mapping[str, str]) -> str:
    text = given.get("rerun", COMPARE)
    if text not in (COMPARE, TRUST):
        raise InvalidRequestError(f"rerun is {COMPARE} or {TRUST}, not {text!r}")
    return text


def _name(given: Mapping[str, str], option: str) -> str | None:
    text = given.get(option)
    if text is None:
        return None
    plain = text.isprintable() and not set(text) & set('/*"\\')
    if not text.strip() or len(text.encode()) > WRITER_BYTES_MAX or not plain:
        raise InvalidRequestError(
            f'{option} is a text of 1 to {WRITER_BYTES_MAX} bytes without / * " and \\, '
            f"not {text!r}"
        )
    return text
