"""What a gateway received in one turn of its loop, as columns for the sequencer; and the answers.

A turn frame has the plain writes of many connections: for each key and topic a group, for each
record its two lengths, then the bytes of all. A reply frame has a row for each group, of whatever
turns of that gateway. Rows stand one behind the other, so that neither side does anything for each
record in Python. Both come from a process of our own; even so nothing is read before its length
was compared with the frame, and a version that is not ours is refused.

The compiled twin is `native/turns.pyx`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import msgspec

from headwater.core.errors import FormatError
from headwater.format.layout import Field, Layout
from headwater.native import compiled

_native: Final = compiled("turns")
VERSION: Final = 1

TURN: Final = Layout(
    "turn",
    (
        Field("version", "u16", "1"),
        Field("zero", "pad2", "zero"),
        Field("group_count", "u32", "how many groups, 1 or more"),
        Field("record_count", "u32", "records of all groups, 1 or more"),
        Field("first_group", "u64", "number of the first; a gateway counts all it ever sends"),
    ),
    tail=(
        ("20 * group_count", "groups", "rows of `turn group`, each with the next number"),
        ("8 * record_count", "lengths", "rows of `turn record`, in the order of the groups"),
        ("", "names", "of the topics of all groups, UTF-8"),
        ("", "bytes", "of each record its tag, then its data"),
    ),
)
GROUP: Final = Layout(
    "turn group",
    (
        Field("key", "u32", "place of the API key in the settings, from 1; 0 without keys"),
        Field("requests", "u32", "how many requests wait for the answer, 1 or more"),
        Field("record_count", "u32", "records of this group, one or more for each request"),
        Field("bytes", "u32", "tags and datas of this group"),
        Field("name_bytes", "u16", "the name of its topic"),
        Field("zero", "pad2", "zero"),
    ),
)
RECORD: Final = Layout(
    "turn record",
    (
        Field("data_bytes", "u32", "the payload as it was sent"),
        Field("tag_bytes", "u16", "the tag; 0 for a record without one"),
        Field("zero", "pad2", "zero"),
    ),
)
REPLY: Final = Layout(
    "turn reply",
    (
        Field("version", "u16", "1"),
        Field("zero", "pad2", "zero"),
        Field("row_count", "u32", "how many groups are answered, 1 or more"),
    ),
    tail=(
        ("48 * row_count", "rows", "rows of `turn reply row`"),
        ("", "errors", "JSON: a list of the errors that rows name; nothing if none does"),
    ),
)
ROW: Final = Layout(
    "turn reply row",
    (
        Field("group", "u64", "the number of the group"),
        Field("outcome", "u32", "0 written, 1 alone, 2 failed"),
        Field("error", "u32", "where failed: its place in the list of errors"),
        Field("first_seq", "u64", "where written: of the first record of the group"),
        Field("head_seq", "u64", "where written: the head of the topic"),
        Field("sync_us", "u64", "how long the sync took that the group waited for"),
        Field("throttle_us", "u64", "how much longer it waited because of pressure, at most"),
    ),
)
LAYOUTS: Final = (TURN, GROUP, RECORD, REPLY, ROW)

NAME_BYTES_MAX: Final = 2**16 - 1
TAG_BYTES_MAX: Final = 2**16 - 1


class GroupOutcome(IntEnum):
    WRITTEN = 0
    ALONE = 1
    """Nothing of the group was written; each request has to be asked by itself."""
    FAILED = 2
    """The log said so: whether anything is on disk is for the error to say."""


_OUTCOMES: Final = len(GroupOutcome)


# Plain tuples: they are made and taken apart for every topic of every turn.
GroupIn = tuple[int, bytes, int, int]
"""A key, the name of a topic, how many requests, how many records."""
GroupOut = tuple[int, str, int, list[bytes], list[bytes], int]
"""A key, the name of a topic, how many requests; their tags and datas; bytes of these."""
Row = tuple[int, int, int, int, int, int, int]
"""As `ROW` has it."""


class TurnFrame(NamedTuple):
    first_group: int
    groups: list[GroupOut]


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An error on its way to the gateway that prints it."""

    code: str
    message: str
    detail: Mapping[str, Any] | None
    headers: Mapping[str, str]


_failures: Final = msgspec.json.Decoder(list[Failure])


def encode_turn(
    first_group: int, groups: list[GroupIn], tags: list[bytes], datas: list[bytes]
) -> bytes:
    """The records of all groups, one group behind the other."""
    if _native is not None:
        encoded: bytes = _native.encode_turn(VERSION, first_group, groups, tags, datas)
        return encoded
    count = len(datas)
    if not groups or sum(group[3] for group in groups) != count or len(tags) != count:
        raise ValueError("the columns of a turn are as long as its groups say")
    parts = [TURN.packer.pack(VERSION, len(groups), count, first_group)]
    at = 0
    for key, name, requests, records in groups:
        if not 1 <= requests <= records:
            raise ValueError("a group has requests, and each of them a record or more")
        size = sum(map(len, tags[at : at + records])) + sum(map(len, datas[at : at + records]))
        at += records
        if len(name) > NAME_BYTES_MAX:
            raise OverflowError("a name has 65,535 bytes at most")
        parts.append(GROUP.packer.pack(key, requests, records, size, len(name)))
    if any(len(tag) > TAG_BYTES_MAX for tag in tags):
        raise OverflowError("a tag has 65,535 bytes at most")
    parts += map(RECORD.packer.pack, map(len, datas), map(len, tags))
    parts += [group[1] for group in groups]
    for tag, data in zip(tags, datas, strict=True):
        parts += (tag, data)
    return b"".join(parts)


def decode_turn(frame: bytes) -> TurnFrame:
    """What `encode_turn` was given. Anything else is a FormatError."""
    if _native is not None:
        try:
            return TurnFrame(*_native.decode_turn(VERSION, frame))
        except ValueError as error:
            raise FormatError(str(error)) from error
    head = TURN.unpack(frame)
    groups_at = TURN.size
    records_at = groups_at + head["group_count"] * GROUP.size
    names_at = records_at + head["record_count"] * RECORD.size
    _require(head["version"] == VERSION, f"a turn of version {head['version']}")
    _require(head["group_count"] > 0, "a turn without groups")
    _require(names_at <= len(frame), "a turn that is cut off")
    rows = list(GROUP.packer.iter_unpack(frame[groups_at:records_at]))
    lengths = list(RECORD.packer.iter_unpack(frame[records_at:names_at]))
    at = names_at + sum(row[4] for row in rows)
    _require(sum(row[2] for row in rows) == len(lengths), "groups that are not the records")
    _require(at + sum(map(sum, lengths)) == len(frame), "a turn of another length")
    name_at, record = names_at, 0
    groups: list[GroupOut] = []
    for key, requests, records, size, name_bytes in rows:
        _require(1 <= requests <= records, "a group with fewer records than requests")
        name = _text(frame[name_at : name_at + name_bytes])
        name_at += name_bytes
        own = lengths[record : record + records]
        record += records
        _require(sum(map(sum, own)) == size, "a group of another length")
        ends = accumulate((length for pair in own for length in reversed(pair)), initial=at)
        cuts = [frame[first:end] for first, end in pairwise(ends)]
        groups.append((key, name, requests, cuts[::2], cuts[1::2], size))
        at += size
    return TurnFrame(head["first_group"], groups)


def encode_reply(rows: list[Row], failures: Sequence[Failure] = ()) -> bytes:
    errors = msgspec.json.encode(list(failures)) if failures else b""
    if _native is not None:
        encoded: bytes = _native.encode_reply(VERSION, rows, errors)
        return encoded
    parts = [REPLY.packer.pack(VERSION, len(rows)), *(ROW.packer.pack(*row) for row in rows)]
    return b"".join([*parts, errors])


def decode_reply(frame: bytes) -> tuple[list[Row], list[Failure]]:
    """What `encode_reply` was given. Anything else is a FormatError."""
    rows: list[Row]
    if _native is not None:
        try:
            rows, errors_at = _native.decode_reply(VERSION, frame)
        except ValueError as error:
            raise FormatError(str(error)) from error
    else:
        head = REPLY.unpack(frame)
        errors_at = REPLY.size + head["row_count"] * ROW.size
        _require(head["version"] == VERSION, f"a reply of version {head['version']}")
        _require(head["row_count"] > 0, "a reply without rows")
        _require(errors_at <= len(frame), "a reply that is cut off")
        rows = list(ROW.packer.iter_unpack(frame[REPLY.size : errors_at]))
        _require(all(row[1] < _OUTCOMES for row in rows), "an outcome that there is not")
    try:
        failures = _failures.decode(frame[errors_at:]) if errors_at < len(frame) else []
    except msgspec.MsgspecError as error:
        raise FormatError("errors that cannot be read") from error
    named = {row[2] for row in rows if row[1] == GroupOutcome.FAILED}
    _require(max(named, default=-1) < len(failures), "an error that there is not")
    return rows, failures


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise FormatError(otherwise)


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise FormatError("a name that is not text") from error
