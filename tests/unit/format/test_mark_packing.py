"""A mark packed in one step has the bytes of a frame whose data is the mark's layout."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.format.frame import FrameType, encode_frame
from headwater.format.mark import COMMIT_MARK, pack_mark

WIDTH_BITS = {"u16": 16, "u32": 32, "u64": 64}
VALUES = st.tuples(
    *(st.integers(0, 2 ** WIDTH_BITS[field.code] - 1) for field in COMMIT_MARK.fields)
)


@given(st.integers(0, 2**64 - 1), VALUES)
def test_a_mark_is_an_ordinary_frame_with_the_layout_as_data(
    ts: int, values: tuple[int, ...]
) -> None:
    frame = encode_frame(FrameType.COMMIT_MARK, 0, ts=ts, data=COMMIT_MARK.packer.pack(*values))
    assert pack_mark(ts, *values) == frame
