"""Compiled columns: entries, frames and their parts come out as the pure code has them."""

from __future__ import annotations

import os
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import FormatError
from headwater.format import appends
from headwater.format.frame import FrameFlag
from headwater.format.segment import (
    INDEX_DTYPE,
    SEGMENT_FRAME,
    FrameState,
    encode_segment_frame,
    entry,
    verify,
)
from headwater.native import missing
from headwater.wire import frame_rows
from headwater.wire.frame_rows import PARTS, FrameRows
from tests.unit.native.test_twins import pure

pytestmark = pytest.mark.skipif(
    "columns" in missing() and not os.environ.get("CI"),
    reason="not compiled here: apt-get install gcc python3-dev, then make clean venv",
)

META = 8
frames = st.lists(
    st.tuples(
        st.integers(0, 2**62),
        st.integers(0, 15),
        st.binary(max_size=20),
        st.text(max_size=20).map(str.encode),
        st.binary(max_size=300) | st.text(max_size=200).map(str.encode),
        st.sampled_from(FrameState),
    ),
    max_size=30,
)


def laid(rows: list[Any], first_seq: int = 1) -> tuple[bytes, Any]:
    """A segment of these rows, and its entries."""
    data, listed = bytearray(), []
    for seq, (ts, flags, node, tag, payload, state) in enumerate(rows, first_seq):
        whole = payload + len(payload[:5]).to_bytes(4, "little") if flags & META else payload
        gone = 0x80 if state is FrameState.DELETED else 0
        frame = encode_segment_frame(
            seq, ts, flags=flags, node=node, tag=tag, data=whole, state=state
        )
        listed.append((len(data), len(frame), ts, flags | gone))
        data += frame
    entries = numpy.array(listed, INDEX_DTYPE)
    entry.seal_checks(entries, first_seq)
    return bytes(data), entries


def columns(rows: FrameRows) -> list[Any]:
    parts = [rows.binary(name).to_pylist() for name in PARTS]
    texts = [rows.text(name).to_pylist() for name in PARTS]
    for name in PARTS:
        rows.binary(name).validate(full=True)
        rows.text(name).validate(full=True)
    return [rows.seqs.tolist(), rows.ts_ms.tolist(), rows.ts_us.tolist(), *parts, *texts]


def test_the_layouts_are_those_of_the_format() -> None:
    assert SEGMENT_FRAME.size == 29
    assert INDEX_DTYPE.itemsize == 20
    assert sum(FrameFlag) == 0x0F


@given(frames, st.integers(1, 2**62))
def test_checks_of_entries_are_the_same(rows: list[Any], first_seq: int) -> None:
    _, entries = laid(rows, first_seq)
    flags = entries["flags_check"] & 0xFF
    found = entry._checks(entries, flags, first_seq)
    assert found.tolist() == pure(entry._checks, entry, entries, flags, first_seq).tolist()
    assert not len(entry.bad_entries(entries, first_seq))


@given(frames, st.data(), st.booleans())
def test_faults_of_frames_are_the_same_whatever_is_damaged(
    rows: list[Any], draw: st.DataObject, checksums: bool
) -> None:
    data, entries = laid(rows)
    broken, listed = bytearray(data), bytearray(entries.tobytes())
    for target in (broken, listed):
        for _ in range(draw.draw(st.integers(0, 4))):
            if target:
                at = draw.draw(st.integers(0, len(target) - 1))
                target[at] ^= draw.draw(st.integers(1, 255))
    wrong = numpy.frombuffer(bytes(listed), INDEX_DTYPE)
    cut = bytes(broken[: draw.draw(st.integers(0, len(broken)))])
    base = draw.draw(st.integers(-3, 3))

    def faults() -> list[int]:
        found: list[int] = verify.frame_faults(cut, wrong, 1, base, checksums=checksums).tolist()
        return found

    assert faults() == pure(faults, verify)


@given(frames)
def test_parts_of_segment_frames_are_the_same(rows: list[Any]) -> None:
    data, entries = laid(rows)
    offsets = entries["offset"].astype(numpy.int64)

    def found() -> list[Any]:
        return columns(FrameRows.of_segment(memoryview(data), offsets))

    assert found() == pure(found, frame_rows)
    some = numpy.arange(len(offsets)) % 2 == 0

    def kept() -> list[Any]:
        return columns(FrameRows.of_segment(memoryview(data), offsets).kept(some))

    assert kept() == pure(kept, frame_rows)


@given(frames.filter(len))
def test_parts_of_frames_of_the_log_are_the_same(rows: list[Any]) -> None:
    times, flags, nodes, tags, datas, _ = map(list, zip(*rows, strict=True))
    plain = [each & ~META for each in flags]
    made = appends.encode_appends(7, 3, times, plain, nodes, tags, datas)
    offsets = numpy.array(made.offsets, numpy.int64)

    def found() -> list[Any]:
        return columns(FrameRows.of_log(memoryview(made.buffer), offsets))

    assert found() == pure(found, frame_rows)


def test_meta_that_is_longer_than_its_data_is_refused_by_both() -> None:
    data = encode_segment_frame(1, 1, flags=META, data=b"ab\xff\xff\0\0")
    rows = FrameRows.of_segment(memoryview(data), numpy.array([0]))
    for work in (rows.binary, lambda name: pure(rows.binary, frame_rows, name)):
        with pytest.raises(FormatError, match="longer than the data"):
            work("meta")


@pytest.mark.parametrize("offset", [-1, 1, 38, 2**40])
def test_a_frame_that_is_not_in_the_bytes_is_refused(offset: int) -> None:
    data = encode_segment_frame(1, 1, data=b"1" * 40)[:60]
    rows = FrameRows.of_segment(memoryview(data), numpy.array([offset]))
    with pytest.raises(FormatError, match="not in these bytes"):
        rows.binary("data")
    if not 0 <= offset <= len(data) - SEGMENT_FRAME.size:
        with pytest.raises(ValueError, match="no frame at"):
            _ = rows.seqs
