"""Runs of the machines' log: compiled and pure, they are the same, of hostile bytes as well."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.format.machines import entry as module
from headwater.format.machines.entry import (
    ENTRY,
    HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    EntryRun,
    EntryType,
    encode_entries,
    encode_entry,
    read_run,
)
from tests.unit.native.twins import is_compiled, pure

payloads = st.lists(st.tuples(st.sampled_from(EntryType), st.binary(max_size=40)), max_size=6)
batches = st.lists(st.tuples(payloads, st.booleans(), st.booleans(), st.integers(0, 2)), max_size=5)
sequences = st.integers(0, 2**64 - 100)


def joined(parts: list[tuple[list[tuple[EntryType, bytes]], bool, bool, int]], first: int) -> bytes:
    """Batches one behind the other; now and then numbers are left out."""
    log = b""
    for rows, is_batch, is_plain, gap in parts:
        first += gap
        log += encode_entries(rows, first, is_batch=is_batch, is_plain=is_plain)
        first += len(rows)
    return log


@is_compiled
@given(batches, sequences, st.integers(0, 40), st.integers(1, 8))
def test_both_read_the_same_run(
    parts: list[tuple[list[tuple[EntryType, bytes]], bool, bool, int]],
    first: int,
    at: int,
    limit: int,
) -> None:
    log = joined(parts, first)
    assert read_run(log, at, limit) == pure(read_run, module, log, at, limit)


@is_compiled
@given(batches, sequences, st.data())
def test_both_stop_at_the_same_damage(
    parts: list[tuple[list[tuple[EntryType, bytes]], bool, bool, int]],
    first: int,
    data: st.DataObject,
) -> None:
    log = bytearray(joined(parts, first))
    for _ in range(data.draw(st.integers(0, 2))):
        if log:
            log[data.draw(st.integers(0, len(log) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = bytes(log[: data.draw(st.integers(0, len(log)))])
    assert read_run(damaged, 0) == pure(read_run, module, damaged, 0)


@is_compiled
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("length", PAYLOAD_BYTES_MAX + 1),
        ("length", 2**32 - 1),
        ("type", 0),
        ("type", 7),
        ("flags", 4),
        ("reserved", 1),
        ("reserved", 256),
    ],
)
def test_both_refuse_a_header_that_says_what_cannot_be(field: str, value: int) -> None:
    plain = encode_entries([(EntryType.CHECKPOINT, b"{}")], 1, is_batch=False, is_plain=True)
    size = {"type": 1, "flags": 1, "reserved": 2, "length": 4}[field]
    at = ENTRY.offset_of(field)
    wrong = plain[:at] + value.to_bytes(size, "big") + plain[at + size :]
    assert read_run(plain, 0).kinds == [EntryType.CHECKPOINT]
    for found in (read_run(wrong, 0), pure(read_run, module, wrong, 0)):
        assert found == EntryRun(0, 0, 0, [], [], [])


def test_a_run_ends_where_a_number_is_missing_and_says_which_of_it_are_whole_batches() -> None:
    rows = [(EntryType.CREATE_INSTANCE, b"a"), (EntryType.APPLY_EVENT, b"bb")]
    whole = encode_entries(rows, 7, is_batch=True)
    opened = encode_entry(EntryType.APPLY_EVENT, 9, b"ccc", more=True)
    log = b"junk" + whole + opened + encode_entry(EntryType.CHECKPOINT, 11, b"{}")
    run = read_run(log, 4)
    sizes = [HEADER_BYTES + 4 + length for length in (1, 2, 3)]
    *offsets, end = accumulate(sizes, initial=4)
    assert run == EntryRun(
        7, 2, end,
        [EntryType.CREATE_INSTANCE, EntryType.APPLY_EVENT, EntryType.APPLY_EVENT],
        offsets, [b"a", b"bb", b"ccc"],
    )  # fmt: skip
    assert run.behind(2) == EntryRun(9, 0, end, run.kinds[2:], offsets[2:], [b"ccc"])
    assert read_run(log, 4, 1) == EntryRun(7, 0, offsets[1], run.kinds[:1], [4], [b"a"])
    assert not read_run(log, 0).kinds
    assert not read_run(log, len(log) + 5).kinds
