"""Turns and their replies: what goes in comes out, whoever packs it, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import FormatError
from headwater.wire import turns
from headwater.wire.turns import (
    GROUP,
    RECORD,
    REPLY,
    ROW,
    TURN,
    Failure,
    GroupIn,
    GroupOut,
    GroupOutcome,
    Row,
    TurnFrame,
    decode_reply,
    decode_turn,
    encode_reply,
    encode_turn,
)
from tests.unit.native.twins import is_compiled, pure

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
names = st.text(min_size=1, max_size=12)
records = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=60)), min_size=1, max_size=5)


@st.composite
def groups(draw: st.DrawFn) -> GroupOut:
    own = draw(records)
    tags, datas = [tag for tag, _ in own], [data for _, data in own]
    requests = draw(st.integers(1, len(own)))
    size = sum(map(len, tags)) + sum(map(len, datas))
    return draw(u32), draw(names), requests, tags, datas, size


some_turns = st.builds(TurnFrame, u64, st.lists(groups(), min_size=1, max_size=6))
rows = st.lists(
    st.tuples(u64, st.sampled_from([0, 1]), u32, u64, u64, u64, u64), min_size=1, max_size=9
)
FAILURES = [Failure("disk_full", "no room", {"path": "wal"}, {"retry-after": "1"})]


def packed(turn: TurnFrame) -> bytes:
    given_groups: list[GroupIn] = [
        (key, name.encode(), requests, len(datas))
        for key, name, requests, _, datas, _ in turn.groups
    ]
    tags = [tag for group in turn.groups for tag in group[3]]
    datas = [data for group in turn.groups for data in group[4]]
    return encode_turn(turn.first_group, given_groups, tags, datas)


@given(some_turns)
def test_a_turn_comes_out_as_it_went_in(turn: TurnFrame) -> None:
    assert decode_turn(packed(turn)) == turn
    assert pure(decode_turn, turns, pure(packed, turns, turn)) == turn


@is_compiled
@given(some_turns)
def test_turns_are_the_same_bytes(turn: TurnFrame) -> None:
    assert packed(turn) == pure(packed, turns, turn)


@given(rows, st.booleans())
def test_a_reply_comes_out_as_it_went_in(given_rows: list[Row], fails: bool) -> None:
    failures = FAILURES if fails else []
    if fails:
        given_rows.append((1, GroupOutcome.FAILED, 0, 0, 0, 0, 0))
    frame = encode_reply(given_rows, failures)
    assert frame == pure(encode_reply, turns, given_rows, failures)
    assert decode_reply(frame) == (given_rows, failures)
    assert pure(decode_reply, turns, frame) == (given_rows, failures)


def outcome(function: Callable[[bytes], Any], frame: bytes) -> Any:
    try:
        return function(frame)
    except FormatError:
        return FormatError


@st.composite
def bent(draw: st.DrawFn, frames: st.SearchStrategy[bytes]) -> bytes:
    """A frame of which something was changed, cut off or added."""
    frame = bytearray(draw(frames))
    for at, value in draw(
        st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4)
    ):
        frame[at % len(frame)] = value
    cut = draw(st.integers(0, len(frame)))
    return bytes(frame[:cut] if draw(st.booleans()) else frame) + draw(st.binary(max_size=3))


@given(bent(some_turns.map(packed)))
def test_a_turn_that_was_bent_is_refused_or_means_the_same_to_both(frame: bytes) -> None:
    assert outcome(decode_turn, frame) == pure(outcome, turns, decode_turn, frame)


@given(bent(rows.map(encode_reply)))
def test_a_reply_that_was_bent_is_refused_or_means_the_same_to_both(frame: bytes) -> None:
    assert outcome(decode_reply, frame) == pure(outcome, turns, decode_reply, frame)


ONE = packed(TurnFrame(7, [(1, "t", 1, [b"g"], [b"data"], 5)]))


def changed(frame: bytes, layout: Any, at: int, field: str, value: int) -> bytes:
    bytes_now = bytearray(frame)
    width = next(each.width for each in layout.fields if each.name == field)
    first = at + layout.offset_of(field)
    bytes_now[first : first + width] = value.to_bytes(width, "little")
    return bytes(bytes_now)


BAD_TURNS = {
    "version": changed(ONE, TURN, 0, "version", 2),
    "no groups": changed(ONE, TURN, 0, "group_count", 0),
    "more groups": changed(ONE, TURN, 0, "group_count", 2**32 - 1),
    "more records": changed(ONE, TURN, 0, "record_count", 2**32 - 1),
    "no requests": changed(ONE, GROUP, TURN.size, "requests", 0),
    "more requests than records": changed(ONE, GROUP, TURN.size, "requests", 2),
    "records of nobody": changed(ONE, GROUP, TURN.size, "record_count", 0),
    "another size": changed(ONE, GROUP, TURN.size, "bytes", 4),
    "a longer name": changed(ONE, GROUP, TURN.size, "name_bytes", 2),
    "more data": changed(ONE, RECORD, TURN.size + GROUP.size, "data_bytes", 2**32 - 1),
    "cut off": ONE[:-1],
    "something behind": ONE + b" ",
    "nothing": b"",
    "no text": ONE.replace(b"tgdata", b"\xffgdata"),
}


@pytest.mark.parametrize("why", BAD_TURNS)
def test_a_bad_turn_is_refused(why: str) -> None:
    for found in (outcome(decode_turn, BAD_TURNS[why]),
                  pure(outcome, turns, decode_turn, BAD_TURNS[why])):  # fmt: skip
        assert found is FormatError


REPLIED = encode_reply([(1, GroupOutcome.FAILED, 0, 0, 0, 0, 0)], FAILURES)
BAD_REPLIES = {
    "version": changed(REPLIED, REPLY, 0, "version", 2),
    "no rows": changed(REPLIED, REPLY, 0, "row_count", 0),
    "more rows": changed(REPLIED, REPLY, 0, "row_count", 2**32 - 1),
    "no such outcome": changed(REPLIED, ROW, REPLY.size, "outcome", 3),
    "no such error": changed(REPLIED, ROW, REPLY.size, "error", 1),
    "no errors": REPLIED[: REPLY.size + ROW.size],
    "half of the errors": REPLIED[:-2],
    "cut off": REPLIED[: REPLY.size + ROW.size - 1],
    "nothing": b"",
}


@pytest.mark.parametrize("why", BAD_REPLIES)
def test_a_bad_reply_is_refused(why: str) -> None:
    for found in (outcome(decode_reply, BAD_REPLIES[why]),
                  pure(outcome, turns, decode_reply, BAD_REPLIES[why])):  # fmt: skip
        assert found is FormatError


@pytest.mark.parametrize(
    ("given_groups", "tags", "datas"),
    [
        ([], [], []),
        ([(0, b"t", 1, 2)], [b""], [b""]),
        ([(0, b"t", 1, 1)], [b"", b""], [b"", b""]),
        ([(0, b"t", 1, 1)], [b"", b""], [b""]),
        ([(0, b"t", 0, 1)], [b""], [b""]),
        ([(0, b"t", 2, 1)], [b""], [b""]),
        ([(0, b"t" * 2**16, 1, 1)], [b""], [b""]),
        ([(0, b"t", 1, 1)], [b"g" * 2**16], [b""]),
    ],
)
def test_columns_that_are_no_turn_are_not_packed(
    given_groups: list[GroupIn], tags: list[bytes], datas: list[bytes]
) -> None:
    with pytest.raises((ValueError, OverflowError)):
        encode_turn(1, given_groups, tags, datas)
    with pytest.raises((ValueError, OverflowError)):
        pure(encode_turn, turns, 1, given_groups, tags, datas)
