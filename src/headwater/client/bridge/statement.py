"""How far a bridge has copied, as it records it in the destination. Pure.

A statement says for each partition: what lies in the source before `source` is in the destination
before `dest`, and the next record of the source goes there. Behind a statement the destination
holds copies in the source's order and nothing else, so counting them tells where to go on: the
copies themselves are the position, and the statement is only where counting begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from headwater.core.errors import InvalidRequestError


class CopyPosition(NamedTuple):
    """The next record to copy, and where it goes."""

    source: int
    dest: int


class Watermarks(NamedTuple):
    low: int
    high: int


class Statement(msgspec.Struct, frozen=True):
    """One record of the topic of positions: everything a bridge knows."""

    source: str
    positions: dict[str, dict[str, CopyPosition]] = msgspec.field(name="places")
    """By topic and partition; JSON has no other keys than text."""
    is_clean: bool = False
    """The bridge ended after it; nothing of it can be under way."""
    version: int = 1
    owner: str = ""
    """Which run of a bridge wrote it. Empty where an older version did, as are `ids`."""
    ids: dict[str, str] = {}
    """By topic, of the source: a topic that is made anew has another one."""

    def position(self, topic: str, partition: int) -> CopyPosition | None:
        return self.positions.get(topic, {}).get(str(partition))

    def items(self) -> Iterator[tuple[str, int, CopyPosition]]:
        for topic, partitions in self.positions.items():
            for partition, position in partitions.items():
                yield topic, int(partition), position


def encode_statement(statement: Statement) -> bytes:
    return msgspec.json.encode(statement)


def decode_statement(value: bytes, where: str) -> Statement:
    try:
        statement = msgspec.json.decode(value, type=Statement)
    except msgspec.MsgspecError as error:
        raise InvalidRequestError(
            f"{where} holds something that no bridge wrote: {error}"
        ) from error
    if statement.version != 1:
        raise InvalidRequestError(f"{where} was written by a newer version of headwater bridge")
    return statement


class BridgeStoppedError(InvalidRequestError):
    """The bridge cannot go on until an operator decides something."""


def uncounted(position: CopyPosition, source: Watermarks, dest: Watermarks, where: str) -> int:
    """How many copies lie behind the statement. Refuses what cannot be counted."""
    copies = dest.high - position.dest
    if copies < 0:
        raise BridgeStoppedError(
            f"{where}: the destination ends at {dest.high} and had {position.dest} records "
            "already; it was dropped or cut. Drop it and the bridge's topic of positions to copy "
            "anew"
        )
    if source.high < position.source:
        raise BridgeStoppedError(
            f"{where}: the source ends at {source.high} and was copied up to {position.source}; "
            "it was made anew. Under another --name it is copied behind what is there"
        )
    if source.low > position.source:
        raise BridgeStoppedError(
            f"{where}: the source begins at {source.low}; its records from {position.source} on "
            "were deleted before they were copied. --skip-lost goes on behind the loss",
            detail={"reason": "source_lost", "lost_from": position.source, "lost_to": source.low},
        )
    return copies
