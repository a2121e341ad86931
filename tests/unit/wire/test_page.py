"""Pages: text and places of records go through the channel as they are, and damage is refused."""

from __future__ import annotations

import random

import numpy
import pytest

from headwater.wire.channel import ChannelError
from headwater.wire.frames import Projection
from headwater.wire.page import LocatedFrames, Piece, page_payload, read_page

ROUNDS = 400


def located(count: int, projection: Projection) -> LocatedFrames:
    offsets = numpy.arange(count, dtype=numpy.int64) * 77
    return LocatedFrames("/data/t\udcff/1.data", 9_000, 5, offsets, projection)


def same(one: Piece, other: Piece) -> bool:
    if isinstance(one, bytes) or isinstance(other, bytes):
        return one == other
    return one.offsets.tolist() == other.offsets.tolist() and (
        one._replace(offsets=other.offsets) == other
    )


@pytest.mark.parametrize("tags", [True, False])
@pytest.mark.parametrize("meta", [True, False])
def test_pieces_arrive_as_they_were_sent(tags: bool, meta: bool) -> None:
    pieces: list[Piece] = [b"[", located(3, Projection(tags, meta)), b",", located(1, Projection())]
    arrived = list(read_page(b"".join(page_payload(pieces))))
    assert len(arrived) == len(pieces)
    assert all(same(one, other) for one, other in zip(pieces, arrived, strict=True))


def test_a_damaged_page_is_refused_or_read_and_never_anything_else() -> None:
    chance = random.Random(5)
    payload = b"".join(page_payload([b"[", located(3, Projection()), b"]"]))
    refused = 0
    for _ in range(ROUNDS):
        damaged = bytearray(payload)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        del damaged[chance.randrange(len(damaged)) :]
        try:
            list(read_page(bytes(damaged)))
        except ChannelError:
            refused += 1
    assert refused > ROUNDS // 4
