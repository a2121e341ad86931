"""The newest frames of a topic: whatever shares a chunk, each record is where its seq says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import InvariantError
from headwater.engine.state.topic import CHUNK_BYTES_MIN, Tail, TailChunk

SIZES = st.sampled_from([1, 7, 300, CHUNK_BYTES_MIN - 1, CHUNK_BYTES_MIN])
RUNS = st.lists(st.tuples(st.booleans(), st.lists(SIZES, min_size=1, max_size=3)), max_size=30)


def record(seq: int, size: int) -> bytes:
    return bytes([seq % 251]) * size


def found_in(chunk: TailChunk) -> dict[int, bytes]:
    ends = [*chunk.offsets[1:], len(chunk.buffer)]
    cuts = zip(chunk.offsets, ends, strict=True)
    return {seq: chunk.buffer[at:end] for seq, (at, end) in enumerate(cuts, chunk.first_seq)}


@given(RUNS, st.lists(st.integers(0, 29)), st.integers(1, 100))
def test_records_come_back_under_their_seqs_however_they_were_put_there(
    runs: list[tuple[bool, list[int]]], looks: list[int], first_seq: int
) -> None:
    tail = Tail()
    expected: dict[int, bytes] = {}
    seq = first_seq
    for turn, (alone, sizes) in enumerate(runs):
        records = [record(seq + at, size) for at, size in enumerate(sizes)]
        offsets = [sum(sizes[:at]) for at in range(len(sizes))]
        if alone:
            tail.append(TailChunk(seq, b"".join(records), offsets))
        else:
            tail.add(seq, b"".join(records), offsets)
        expected.update(enumerate(records, seq))
        seq += len(sizes)
        if turn in looks:
            assert (tail.first_seq, tail.last_seq) == (first_seq, seq - 1)
    found: dict[int, bytes] = {}
    while len(tail):
        rest = [one for chunk in tail.chunks(first_seq, seq) for one in found_in(chunk)]
        first = tail.first_chunk
        assert rest == list(range(first.first_seq, seq))
        assert tail.first_seq == first.first_seq
        assert tail.drop_first() is first
        found |= found_in(first)
    assert found == expected
    assert (tail.first_seq, tail.last_seq) == (None, None)


def test_short_runs_share_a_chunk_and_long_ones_have_their_own() -> None:
    tail = Tail()
    for seq in range(1, 5):
        tail.add(seq, b"short", [0])
    tail.add(5, bytes(CHUNK_BYTES_MIN), [0])
    tail.add(6, b"short", [0])
    for seq in range(7, 10):
        tail.add(seq, bytes(CHUNK_BYTES_MIN // 2), [0])
    found = [(chunk.first_seq, chunk.last_seq) for chunk in tail.chunks(1, 9)]
    assert found == [(1, 4), (5, 5), (6, 8), (9, 9)]


@pytest.mark.parametrize("joined", [False, True])
def test_a_gap_in_the_tail_is_a_mistake(joined: bool) -> None:
    tail = Tail()
    tail.add(1, b"a", [0])
    if joined:
        assert len(tail) == 1
    with pytest.raises(InvariantError, match="ends at seq 1"):
        tail.add(3, b"c", [0])
    tail.clear()
    tail.add(3, b"c", [0])
    assert tail.first_seq == 3
