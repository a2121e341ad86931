"""The packed indexes against plain lists and dicts, with blocks and chunks small and real."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.format.segment import INDEX_ENTRY, IndexFlag, seal_checks
from headwater.model import index as index_module
from headwater.model import tags as tags_module
from headwater.model.index import SeqIndex
from headwater.model.match import TagMatcher
from headwater.model.tags import TagIndex

OVERHEAD = 38
FIRST = 1_000

steps = st.lists(
    st.one_of(
        st.tuples(st.just("one"), st.integers(0, 50), st.integers(0, 99)),
        st.tuples(st.just("many"), st.integers(1, 9), st.integers(0, 99)),
        st.tuples(st.just("lost"), st.integers(1, 9), st.integers(0, 99)),
        st.tuples(st.just("load"), st.integers(1, 20), st.integers(0, 99)),
        st.tuples(st.just("delete"), st.integers(0, 60), st.integers(1, 9)),
        st.tuples(st.just("drop"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("offsets"), st.integers(-3, 20), st.integers(1, 9)),
    ),
    max_size=40,
)

Row = tuple[int, int, int, int]
"""offset, len, ts, flags."""


class Twin:
    """Rows in a dict."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.base = FIRST
        self.next = FIRST

    def add(self, length: int, ts: int, flags: int, offset: int = 0) -> None:
        self.rows[self.next] = (offset, length, ts, flags)
        self.next += 1

    def live(self) -> list[int]:
        return [seq for seq, row in self.rows.items() if not row[3] & 0x80]


def apply(index: SeqIndex, twin: Twin, kind: str, first: int, second: int) -> None:
    if kind == "one":
        index.append_one(OVERHEAD + first, second, IndexFlag.IN_WAL)
        twin.add(OVERHEAD + first, second, 0x10)
    elif kind == "many":
        index.append_many([OVERHEAD + first] * first, second, [0x11] * first)
        for _ in range(first):
            twin.add(OVERHEAD + first, second, 0x11)
    elif kind == "lost":
        index.append_dead(first, second, lost=True)
        for _ in range(first):
            twin.add(OVERHEAD, second, 0xA0)
    elif kind == "load":
        entries = numpy.zeros(first, INDEX_ENTRY.dtype)
        for at in range(first):
            row = (at * 50, OVERHEAD + at, second, 0x80 if at % 3 == 0 else 1)
            entries[at] = row
            twin.add(row[1], row[2], row[3], row[0])
        seal_checks(entries, index.next_seq)
        index.append_entries(entries)
    elif kind == "delete":
        seqs = numpy.arange(twin.base - 3 + first, twin.base + first + 40, second)
        newly = index.mark_deleted(seqs.tolist() if second == 1 else seqs).tolist()
        assert newly == [seq for seq in twin.live() if seq in set(seqs.tolist())]
        for seq in newly:
            offset, length, ts, flags = twin.rows[seq]
            twin.rows[seq] = (offset, length, ts, flags | 0x80)
    elif kind == "drop":
        floor = min(twin.base + first, twin.next)
        gone = [twin.rows[seq] for seq in twin.live() if seq < floor]
        expected = (len(gone), sum(row[1] - OVERHEAD for row in gone))
        assert index.drop_before(floor) == expected
        twin.rows = {seq: row for seq, row in twin.rows.items() if seq >= floor}
        twin.base = floor
    else:
        start = max(twin.base + first, 1)
        end = min(start + second, twin.next)
        if start < end:
            index.set_offsets(start, numpy.arange(start, end) * 7)
            for seq in range(max(start, twin.base), end):
                _, length, ts, flags = twin.rows[seq]
                twin.rows[seq] = (seq * 7, length, ts, flags & ~0x10)


@pytest.mark.claims(212, 214, 215, 216, 217, 221, 222)
@pytest.mark.parametrize("bits", [1, 3, 12])
@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_a_seq_index_holds_what_a_dict_of_rows_holds(
    bits: int, steps: list[tuple[str, int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "BLOCK_BITS", bits)
        patch.setattr(index_module, "_BLOCK_MASK", (1 << bits) - 1)
        index, twin = SeqIndex(FIRST), Twin()
        for kind, first, second in steps:
            apply(index, twin, kind, first, second)
            live = twin.live()
            assert (index.base_seq, index.next_seq) == (twin.base, twin.next)
            assert index.live_count == len(live)
            assert index.live_bytes == sum(twin.rows[seq][1] - OVERHEAD for seq in live)
            assert index.lost_count == sum(1 for row in twin.rows.values() if row[3] & 0x20)
        held = index.entries(index.base_seq, index.next_seq - 1)
        assert [tuple(map(int, row)) for row in held.tolist()] == list(twin.rows.values())
        for seq in range(twin.base, twin.next + 1):
            later = [each for each in twin.live() if each >= seq]
            assert index.first_live(seq) == (later[0] if later else twin.next)
            sooner = [each for each in twin.live() if each < seq]
            assert index.last_live(seq) == (sooner[-1] if sooner else twin.base - 1)


tags = st.sampled_from((b"a", b"ab", b"ab\xff", b"b", b"\xff", b"\xff\xff", b"c"))


tag_steps = st.lists(
    st.tuples(st.sampled_from(("forget", "remove", "prune")), tags, st.integers(0, 45)),
    min_size=1,
    max_size=8,
)


@pytest.mark.claims(213, 230, 231, 232, 233, 234, 235)
@pytest.mark.parametrize("chunk", [1, 3, 16_384])
@settings(max_examples=100, deadline=None)
@given(
    added=st.lists(st.tuples(tags, st.integers(1, 3)), min_size=3, max_size=20),
    older=st.integers(0, 10),
    steps=tag_steps,
)
def test_a_tag_index_finds_what_a_list_of_pairs_finds(
    chunk: int, added: list[tuple[bytes, int]], older: int, steps: list[tuple[str, bytes, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tags_module, "CHUNK_ENTRIES", chunk)
        pairs: list[tuple[bytes, int]] = []
        seq = 0
        for tag, distance in added:
            seq += distance
            pairs.append((tag, seq))
        index = TagIndex()
        for tag, seq in pairs[older:]:
            index.add(tag, seq)
        index.add_older(pairs[:older])
        for choice, text, place in steps:
            if choice == "forget":
                index.forget(TagMatcher(text, prefix=True), place)
                pairs = [(t, s) for t, s in pairs if not (t.startswith(text) and s < place)]
            elif choice == "remove" and pairs:
                tag, seq = pairs.pop(place % len(pairs))
                index.remove(tag, seq)
            elif choice == "prune":
                index.prune_below(max(place, index.floor))
                pairs = [(t, s) for t, s in pairs if s >= place]
            below = [(t, s) for t, s in pairs if s < place]
            assert index.exact(text, place).tolist() == [s for t, s in below if t == text]
            assert index.prefix(text).tolist() == [s for t, s in pairs if t.startswith(text)]
            assert index.prefix(b"").tolist() == [s for _, s in pairs]
