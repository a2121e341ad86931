"""Frames printed many at a time read as the same records printed one by one."""

from __future__ import annotations

import json

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.partition import FrameRun
from headwater.engine.topics.reader import ReadFilter, decode_run
from headwater.format.appends import encode_appends
from headwater.format.frame import FrameFlag, join_data
from headwater.format.segment import WalSlice, encode_run
from headwater.wire.frames import More, Projection, render_frames, render_objects, render_record

WORD = st.one_of(st.none(), st.text(max_size=8))
RECORD = st.tuples(
    WORD,
    WORD,
    st.one_of(st.none(), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)),
    st.one_of(st.integers(), st.text(max_size=20), st.lists(st.integers(), max_size=3)),
)
PROJECTIONS = [
    Projection(tags, meta, data) for tags in (False, True) for meta in (False, True)
    for data in (False, True)
]  # fmt: skip


def frames_of(
    records: list[tuple[str | None, str | None, dict[str, int] | None, object]],
    *,
    in_segment: bool,
    first_seq: int = 5,
) -> FrameRun:
    flags, nodes, tags, datas = [], [], [], []
    for node, tag, meta, value in records:
        own = FrameFlag(0)
        data = json.dumps(value).encode()
        if node is not None:
            own |= FrameFlag.HAS_NODE
        if tag is not None:
            own |= FrameFlag.HAS_TAG
        if meta is not None:
            own |= FrameFlag.HAS_META
            data = join_data(data, json.dumps(meta).encode())
        flags.append(int(own))
        nodes.append((node or "").encode("utf-8", "replace"))
        tags.append((tag or "").encode("utf-8", "replace"))
        datas.append(data)
    times = [1_700_000_000_000] * len(datas)
    made = encode_appends(7, first_seq, times, flags, nodes, tags, datas)
    offsets = numpy.array(made.offsets, numpy.int64)
    if not in_segment:
        return FrameRun(made.buffer, offsets, in_segment=False)
    data_bytes, entries = encode_run([WalSlice(made.buffer, offsets)], first_seq)
    return FrameRun(memoryview(data_bytes), entries["offset"].astype(numpy.int64), in_segment=True)


@pytest.mark.parametrize("in_segment", [False, True])
@given(st.lists(RECORD, max_size=12), st.sampled_from(PROJECTIONS))
def test_many_frames_are_printed_as_their_records_are(
    in_segment: bool,
    records: list[tuple[str | None, str | None, dict[str, int] | None, object]],
    projection: Projection,
) -> None:
    run = frames_of(records, in_segment=in_segment)
    one_by_one: list = []  # type: ignore[type-arg]
    decode_run(run, ReadFilter(), one_by_one)
    printed = render_frames(run.buffer, run.offsets, in_segment=in_segment, projection=projection)
    assert printed == b",".join(render_record(record, projection) for record in one_by_one)
    assert len(json.loads(b"[" + printed + b"]")) == len(records)


def test_frames_that_lie_far_apart_are_printed_alike() -> None:
    run = frames_of([(None, None, None, "x" * 20_000)] * 3, in_segment=True)
    ends = run.offsets[[0, 2]]
    printed = render_frames(run.buffer, ends, in_segment=True, projection=Projection())
    assert [record["$seq"] for record in json.loads(b"[" + printed + b"]")] == [5, 7]


@pytest.mark.parametrize("in_segment", [False, True])
@pytest.mark.parametrize("tag", [None, "red"])
@pytest.mark.parametrize("count", [1, 63, 64, 200])
@pytest.mark.parametrize("special", [{}, {1_005: b',"lease":2', 1_067: b',"lease":3'}])
def test_what_is_told_beside_records_stands_in_each_however_many(
    in_segment: bool, tag: str | None, count: int, special: dict[int, bytes]
) -> None:
    records = [(None, tag, None, "x" * (at % 7)) for at in range(count)]
    run = frames_of(records, in_segment=in_segment, first_seq=1_005)  # type: ignore[arg-type]
    more = More(b',"lease":1', special)
    whole = Projection(tags=True)
    printed = render_frames(
        run.buffer, run.offsets, in_segment=in_segment, projection=whole, more=more
    )
    told = json.loads(b"[" + printed + b"]")
    for at, each in enumerate(told):
        lease = {0: 2, 62: 3}.get(at, 1) if special else 1
        shown = {"$tag": tag} if tag else {}
        time = 1_700_000_000_000
        assert each == {
            **shown, "$seq": at + 1_005, "$ts": time, "lease": lease, "data": "x" * (at % 7)
        }  # fmt: skip
    assert len(told) == count
    alone = render_objects(
        run.buffer, run.offsets, in_segment=in_segment, projection=whole, more=more
    )
    assert b",".join(alone) == printed
