"""Compiled loops over index entries find what their pure twins find."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.format.segment import INDEX_ENTRY, IndexFlag, verify
from headwater.format.segment import frame as segment_frame
from headwater.format.segment.frame import FrameState
from headwater.model import selection
from headwater.model.index import SeqIndex
from headwater.model.slots import OVERHEAD
from headwater.native import PURE_VARIABLE, missing
from headwater.store import pair
from tests.rig.segment_frames import encode_segment_frame

pytestmark = pytest.mark.skipif(
    "entries" in missing() and (not os.environ.get("CI") or bool(os.environ.get(PURE_VARIABLE))),
    reason="not compiled here, or not wanted",
)


def both(module: Any, function: Any, *arguments: Any, **options: Any) -> tuple[Any, Any]:
    found = []
    for native in (module._native, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_native", native)
            found.append(function(*arguments, **options))
    return found[0], found[1]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 40),
    st.integers(1, 400),
    st.data(),
)
def test_the_same_records_are_picked(
    slots: list[tuple[int, bool]], limit: int, bytes_max: int, data: st.DataObject
) -> None:
    index = SeqIndex(7)
    index.append_many([OVERHEAD + size for size, _ in slots], 5, [0] * len(slots))
    index.mark_deleted([7 + at for at, (_, dead) in enumerate(slots) if dead])
    start = data.draw(st.integers(7, 6 + len(slots)))
    stop = data.draw(st.integers(start, 7 + len(slots)))
    compiled, pure = both(selection, selection._pick, index, start, stop, limit, bytes_max)
    assert (compiled[0].tolist(), compiled[1]) == (pure[0].tolist(), pure[1])


@given(st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 2, st.integers(0, 255)), max_size=20))
def test_the_same_stretch_is_read(rows: list[tuple[int, int, int]]) -> None:
    entries = numpy.array([(at, size, 0, flags) for at, size, flags in rows], INDEX_ENTRY.dtype)
    compiled, pure = both(pair, pair.readable_span, entries)
    assert compiled == pure
    if not any(flags & IndexFlag.DAMAGED == 0 for *_, flags in rows):
        assert compiled == (0, 0)


def sound_run() -> tuple[bytes, Any]:
    frames, rows, at = [], [], 0
    for n in range(40):
        state = FrameState.DELETED if n % 5 == 4 else FrameState.LIVE
        gone = IndexFlag.DELETED if state is FrameState.DELETED else 0
        frame = encode_segment_frame(100 + n, 9, flags=n % 4, data=b"x" * n, state=state)
        frames.append(frame)
        rows.append((at, len(frame), 9, n % 4 | gone))
        at += len(frame)
    return b"".join(frames), numpy.array(rows, INDEX_ENTRY.dtype)


def test_a_sound_run_has_no_faults() -> None:
    data, entries = sound_run()
    assert not verify.frame_faults(data, entries, 100).any()


@pytest.mark.parametrize("checksums", [True, False])
def test_the_same_faults_are_found_in_whatever_is_damaged(checksums: bool) -> None:
    data, entries = sound_run()
    dice = random.Random(20_261_117)
    seen: set[int] = set()
    for _ in range(1_500):
        wrong, told = bytearray(data), entries.copy()
        for _ in range(dice.randint(0, 3)):
            wrong[dice.randrange(len(wrong))] = dice.choice((0, 1, 0xD5, 0xFF))
        frame_end = told[dice.randrange(len(told))]
        if dice.random() < 0.4:
            wrong[int(frame_end["offset"] + frame_end["len"]) - 1] = dice.choice((0, 0xD5, 7))
        if dice.random() < 0.4:
            row = dice.randrange(len(told))
            field = dice.choice(("offset", "len", "ts", "flags_check"))
            told[field][row] = dice.choice((0, 1, 37, 38, 0x80, 2**31, 2**32 - 1))
        base = dice.choice((0, 0, 0, 1, 50))
        cut = bytes(
            wrong[base : dice.choice((None, None, dice.randrange(len(wrong)))) or len(wrong)]
        )
        first_seq = dice.choice((100, 100, 100, 101))
        compiled, pure = both(
            verify, verify.frame_faults, cut, told, first_seq, base, checksums=checksums
        )
        assert compiled.tolist() == pure.tolist()
        seen.update(compiled.tolist())
    expected = set(map(int, verify.FrameFault))
    assert seen == (expected if checksums else expected - {int(verify.FrameFault.CHECKSUM)})


def test_entries_that_are_not_one_behind_the_other_are_looked_at_as_well() -> None:
    data, entries = sound_run()
    wider = numpy.zeros(2 * len(entries), INDEX_ENTRY.dtype)
    wider[::2] = entries
    assert not verify.frame_faults(data, wider[::2], 100).any()


@given(st.binary(max_size=40 * 20), st.integers(0, 2**64 - 100))
def test_checks_of_entries_are_the_same(raw: bytes, first_seq: int) -> None:
    entries = numpy.frombuffer(raw[: len(raw) // 20 * 20], segment_frame.INDEX_ENTRY.dtype).copy()
    twin = entries.copy()
    segment_frame.seal_checks(entries, first_seq)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_frame, "_native_entries", None)
        segment_frame.seal_checks(twin, first_seq)
    assert entries.tobytes() == twin.tobytes()
    assert len(segment_frame.bad_entries(entries, first_seq)) == 0
