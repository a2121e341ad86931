"""Bytes from anywhere: every reader raises FormatError or answers, and allocates nothing large."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.frame import FrameType, decode_frame, encode_frame, skim_frames
from headwater.format.log_state import (
    Current,
    Repairs,
    Skip,
    decode_current,
    decode_repairs,
    encode_current,
    encode_repairs,
)
from headwater.format.mark import CommitMark, decode_mark, find_mark, pack_mark
from headwater.recovery.topics.scan import FileScan, MarkChain, Surroundings, scan_file
from headwater.recovery.topics.table import FileVerdict

FRAME = encode_frame(FrameType.APPEND, 7, seq=9, ts=11, node=b"n", tag=b"tag", data=b"data" * 5)
MARK = pack_mark(99, 1, 0, 1, 10, 11, 1, 5, 1, 1024, 1, 0, 0, 0)
CURRENT = encode_current(Current(1, 1024, 0, 1, 77))
REPAIRS = encode_repairs(Repairs((Skip(1, 10, 20, "why"), Skip(2, 0, -1, "all of it"))))

Reader = Callable[[bytes], object]
READERS: dict[str, tuple[Reader, bytes]] = {
    "frame": (lambda raw: decode_frame(memoryview(raw), 0, len(raw)), FRAME),
    "unverified frame": (
        lambda raw: decode_frame(memoryview(raw), 0, len(raw), verify=False),
        FRAME,
    ),
    "mark": (lambda raw: decode_mark(memoryview(raw), 0, len(raw)), MARK),
    "search for a mark": (lambda raw: find_mark(memoryview(raw), 0, None), MARK),
    "skim": (lambda raw: skim_frames(memoryview(raw), 0, len(raw)), FRAME * 3),
    "CURRENT": (decode_current, CURRENT),
    "REPAIRS": (decode_repairs, REPAIRS),
}


def read(reader: Reader, raw: bytes) -> object:
    """The answer, or None for our own error. Anything else is a failure of the test."""
    try:
        return reader(raw)
    except FormatError:
        return None


@pytest.mark.parametrize("name", READERS)
@given(st.binary(max_size=400))
@example(b"")
@example(b"\xff" * 200)
@example(bytes(200))
def test_arbitrary_bytes_raise_nothing_but_a_format_error(name: str, raw: bytes) -> None:
    read(READERS[name][0], raw)


@pytest.mark.parametrize("name", READERS)
@given(st.data())
def test_mutated_bytes_are_refused_or_read_as_something_sound(
    name: str, data: st.DataObject
) -> None:
    reader, good = READERS[name]
    raw = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        how = data.draw(st.sampled_from(["set", "cut", "insert", "copy"]))
        if how == "set":
            raw[at] = data.draw(st.integers(0, 255))
        elif how == "cut" and len(raw) > 1:
            del raw[at]
        elif how == "insert":
            raw.insert(at, data.draw(st.integers(0, 255)))
        else:
            raw[at:at] = raw[: data.draw(st.integers(0, 20))]
    answer = read(reader, bytes(raw))
    checked = name not in ("unverified frame", "skim", "search for a mark")
    if checked and answer is not None and len(raw) == len(good):
        assert bytes(raw) == good, "a checksum let a changed byte through"


@pytest.mark.parametrize("name", READERS)
def test_each_reader_does_read_what_it_should(name: str) -> None:
    reader, good = READERS[name]
    assert read(reader, good)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1))
@example(2**32 - 1, 2**16 - 1, 2**32 - 1)
@settings(max_examples=200)
def test_no_length_is_believed_before_it_is_checked(
    frame_len: int, node_len: int, data_len: int
) -> None:
    """Absurd lengths with a right checksum cost no memory."""
    raw = bytearray(FRAME)
    raw[0:4] = frame_len.to_bytes(4, "little")
    raw[30:32] = node_len.to_bytes(2, "little")
    raw[34:38] = data_len.to_bytes(4, "little")
    raw[-8:] = checksum64(bytes(raw[4:-8])).to_bytes(8, "little")
    tracemalloc.start()
    try:
        read(lambda raw: decode_frame(memoryview(raw), 0, len(raw)), bytes(raw))
        read(lambda raw: decode_frame(memoryview(raw), 0, len(raw), verify=False), bytes(raw))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


MARK_FIELDS = st.fixed_dictionaries(
    {
        "kind": st.integers(0, 2**16 - 1),
        "frame_count": st.integers(0, 2**32 - 1),
        "body_bytes": st.integers(0, 2**64 - 1),
        "body_hash": st.integers(0, 2**64 - 1),
        "run": st.integers(0, 2**64 - 1),
        "file_bytes": st.integers(0, 2**64 - 1),
        "durable_offset": st.integers(0, 2**64 - 1),
        "chain": st.integers(0, 2**64 - 1),
    }
)


@given(MARK_FIELDS, st.binary(max_size=300))
@settings(max_examples=300)
def test_a_scan_of_marks_with_absurd_fields_ends_with_a_verdict(
    fields: dict[str, int], rest: bytes
) -> None:
    mark = CommitMark(version=1, log_id=5, file_frame=1, frame=1, offset=0, **fields)
    raw = pack_mark(0, *mark) + rest
    scan = FileScan(PurePosixPath("wal-1"), 1)
    scan_file(memoryview(raw), scan, MarkChain(), Surroundings(made_bytes=len(raw)))
    assert scan.verdict in FileVerdict
    assert 0 <= scan.end <= len(raw)


@given(
    st.binary(max_size=600),
    st.dictionaries(st.integers(0, 600), st.integers(-1, 700), max_size=5),
    st.none() | st.integers(1, 50),
)
@settings(max_examples=300)
def test_a_scan_of_anything_with_any_agreed_losses_ends(
    raw: bytes, skips: dict[int, int], next_number: int | None
) -> None:
    scan = FileScan(PurePosixPath("wal-1"), 1)
    around = Surroundings(next_number=next_number, skips=skips, witnessed=10, made_bytes=600)
    scan_file(memoryview(raw), scan, MarkChain(), around)
    assert 0 <= scan.end <= len(raw)
