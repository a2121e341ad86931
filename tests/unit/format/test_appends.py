"""A batch encoded at once gives the bytes that its records give one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.format.appends import encode_appends
from headwater.format.frame import FrameFlag, FrameType, encode_frame

U64 = st.integers(0, 2**64 - 1)
RECORDS = st.lists(
    st.tuples(
        U64,
        st.integers(0, 15),
        st.binary(max_size=9),
        st.binary(max_size=9),
        st.binary(max_size=300),
    ),
    max_size=40,
)


@given(U64, st.integers(0, 2**63), RECORDS, st.booleans())
def test_a_batch_has_the_same_bytes_as_its_records_one_by_one(
    topic_id: int,
    first_seq: int,
    records: list[tuple[int, int, bytes, bytes, bytes]],
    bare: bool,
) -> None:
    if bare:  # neither nodes nor tags: what most batches are, and a way of its own
        records = [(ts, own, b"", b"", data) for ts, own, _, _, data in records]
    columns = [[record[at] for record in records] for at in range(5)]
    made = encode_appends(topic_id, first_seq, *columns)  # type: ignore[arg-type]
    frames = [
        made.buffer[at : at + size] for at, size in zip(made.offsets, made.sizes, strict=True)
    ]
    assert b"".join(frames) == made.buffer
    assert frames == [
        encode_frame(
            FrameType.APPEND,
            topic_id,
            seq=seq,
            ts=ts,
            flags=FrameFlag(own),
            node=node,
            tag=tag,
            data=data,
        )
        for seq, (ts, own, node, tag, data) in enumerate(records, first_seq)
    ]


def test_columns_of_different_length_are_refused_not_cut() -> None:
    with pytest.raises(ValueError, match="equally long"):
        encode_appends(1, 1, [0, 0], [0, 0], [b""], [b"", b""], [b"a", b"b"])
