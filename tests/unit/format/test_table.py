"""The table of many frames agrees with reading them one by one, for good bytes and for bad."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import FormatError
from headwater.format.frame import (
    FRAME,
    FRAME_BYTES_MIN,
    Frame,
    FrameType,
    decode_frame,
    encode_frame,
    skim_frames,
)
from headwater.format.table import FrameTable, read_table

U64 = st.integers(0, 2**64 - 1)
FRAMES = st.builds(
    encode_frame,
    st.sampled_from([int(kind) for kind in FrameType]),
    U64,
    seq=U64,
    ts=U64,
    flags=st.integers(0, 15),
    node=st.binary(max_size=5),
    tag=st.binary(max_size=5),
    data=st.binary(max_size=60),
)
GROUPS = st.lists(st.lists(FRAMES, max_size=6), max_size=4)


def one_by_one(
    buffer: memoryview, stretches: list[tuple[int, int]], *, verify: bool
) -> list[Frame] | tuple[str, int]:
    """The reference: frames, or reason and offset of the first error."""
    frames = []
    for at, end in stretches:
        while at < end:
            try:
                frames.append(decode_frame(buffer, at, end, verify=verify))
            except FormatError as error:
                return error.reason, error.offset
            at += frames[-1].size
    return frames


def rows(buffer: memoryview, table: FrameTable) -> list[Frame]:
    found = []
    for row in range(len(table)):
        node_at, tag_at, data_at = (
            int(column[row]) for column in (table.node_at, table.tag_at, table.data_at)
        )
        frame = Frame(
            FrameType(table.type[row]),
            int(table.flags[row]),
            int(table.topic_id[row]),
            int(table.seq[row]),
            int(table.ts[row]),
            bytes(buffer[node_at:tag_at]),
            bytes(buffer[tag_at:data_at]),
            bytes(buffer[data_at : data_at + int(table.data_len[row])]),
            int(table.offset[row]),
            int(table.size[row]),
        )
        found.append(frame)
    return found


@given(GROUPS, st.binary(max_size=9), st.booleans())
def test_the_table_holds_what_reading_one_by_one_gives(
    groups: list[list[bytes]], gap: bytes, verify: bool
) -> None:
    contents, stretches = gap, []
    for group in groups:
        body = b"".join(group)
        stretches.append((len(contents), len(contents) + len(body)))
        contents += body + gap
    buffer = memoryview(contents)
    table = read_table(buffer, stretches, verify=verify)
    assert rows(buffer, table) == one_by_one(buffer, stretches, verify=verify)
    counts = [len(group) for group in groups]
    assert table.first_rows.tolist() == [sum(counts[:index]) for index in range(len(counts) + 1)]
    assert [skim_frames(buffer, start, end) for start, end in stretches] == counts


@given(st.lists(FRAMES, min_size=1, max_size=5), st.data(), st.booleans())
def test_a_changed_byte_gives_the_error_of_reading_one_by_one(
    frames: list[bytes], data: st.DataObject, verify: bool
) -> None:
    contents = bytearray(b"".join(frames))
    position = data.draw(st.integers(0, len(contents) - 1))
    contents[position] ^= data.draw(st.integers(1, 255))
    assert_agreement(bytes(contents), verify=verify)


@given(st.lists(st.tuples(FRAMES, st.sampled_from((1, 63, 64, 65, 700))), min_size=1, max_size=4))
def test_runs_of_frames_of_one_size_are_counted(runs: list[tuple[bytes, int]]) -> None:
    contents = b"".join(frame * count for frame, count in runs)
    assert skim_frames(memoryview(contents), 0, len(contents)) == sum(count for _, count in runs)


@settings(max_examples=200)
@given(FRAMES, st.data())
def test_a_changed_byte_in_a_long_run_is_found_where_it_is(
    frame: bytes, data: st.DataObject
) -> None:
    contents = bytearray(frame * 200)
    # The head and the length decide; what is behind them is for the checksum.
    place = data.draw(st.integers(0, 199)) * len(frame) + data.draw(st.integers(0, FRAME.size - 1))
    contents[place] ^= data.draw(st.integers(1, 255))
    assert_agreement(bytes(contents), verify=False)


@given(st.binary(max_size=3 * FRAME_BYTES_MIN), st.booleans())
def test_arbitrary_bytes_raise_nothing_but_a_format_error(contents: bytes, verify: bool) -> None:
    assert_agreement(contents, verify=verify)


@given(st.lists(FRAMES, min_size=1, max_size=3), st.data())
def test_a_stretch_that_cuts_a_frame_is_refused(frames: list[bytes], data: st.DataObject) -> None:
    contents = b"".join(frames)
    borders = {sum(map(len, frames[:count])) for count in range(len(frames) + 1)}
    end = data.draw(st.integers(0, len(contents)).filter(lambda at: at not in borders))
    with pytest.raises(FormatError):
        read_table(memoryview(contents), [(0, end)])


@pytest.mark.parametrize("stretch", [(-1, 0), (0, 47), (40, 20), (50, 60)])
def test_a_stretch_outside_of_the_buffer_is_refused(stretch: tuple[int, int]) -> None:
    buffer = memoryview(encode_frame(FrameType.APPEND, 1))
    with pytest.raises(FormatError):
        read_table(buffer, [stretch])


def assert_agreement(contents: bytes, *, verify: bool) -> None:
    buffer = memoryview(contents)
    stretches = [(0, len(contents))]
    expected = one_by_one(buffer, stretches, verify=verify)
    try:
        found: list[Frame] | tuple[str, int] = rows(
            buffer, read_table(buffer, stretches, verify=verify)
        )
    except FormatError as error:
        found = (error.reason, error.offset)
    assert found == expected
    if not verify:
        try:
            skimmed: int | tuple[str, int] = skim_frames(buffer, 0, len(contents))
        except FormatError as error:
            skimmed = (error.reason, error.offset)
        assert skimmed == (len(expected) if isinstance(expected, list) else expected)
