"""The dense index: 40 bytes for every record, in the order of their global ids.

All records of a batch have equal entries, which point at the batch. `physical_offset` is where the
batch's length prefix stands, so the batch behind it begins at `physical_offset + 4 + length`. An
entry of length 0 is dead: its batch was left out when its segment was rewritten. No entry is all
zeros, because no topic's hash is: zeros mean that the index ends.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy
from numpy.typing import NDArray

from headwater.format.kafka.topic_hash import TOPIC_HASH_BYTES
from headwater.format.layout import Field, Layout

ENTRY: Final = Layout(
    "offset index entry",
    (
        Field("segment_id", "u32", "number of the .log file"),
        Field("physical_offset", "u32", "where the batch's length prefix stands in it"),
        Field("length", "u32", "bytes of the batch behind the prefix; 0 when it is gone"),
        Field("org_id", "u64", "organisation"),
        Field("topic_hash", "u128", "keyed BLAKE3 of organisation and topic name"),
        Field("partition", "u32", "partition"),
    ),
)
ENTRY_BYTES: Final = ENTRY.size
PREFIX_BYTES: Final = 4
"""The u32, little-endian, in front of every batch in a `.log` file."""
KEY_AT: Final = ENTRY.offset_of("org_id")
KEY_BYTES: Final = ENTRY_BYTES - KEY_AT

_ENTRY_WORDS: Final = ENTRY_BYTES // 8
_LOOK_BACK: Final = 65_536
"""Entries that are looked at in one step when the end of an index is looked for."""

Entries = NDArray[Any]
"""An array of `ENTRY.dtype`."""


def entry_key(org: int, hashed: bytes, partition: int) -> bytes:
    """The part of an entry that says whose record it is."""
    assert len(hashed) == TOPIC_HASH_BYTES
    return org.to_bytes(8, "little") + hashed + partition.to_bytes(4, "little")


def split_key(key: bytes) -> tuple[int, bytes, int]:
    """Organisation, topic hash and partition."""
    return int.from_bytes(key[:8], "little"), key[8:24], int.from_bytes(key[24:], "little")


def pack_entries(segment: int, offset: int, length: int, key: bytes, records: int) -> bytes:
    """The entries of one batch. They are equal, so this costs the same for any number."""
    place = segment.to_bytes(4, "little") + offset.to_bytes(4, "little")
    return (place + length.to_bytes(4, "little") + key) * records


def read_entries(buffer: bytes | memoryview, count: int) -> Entries:
    """The first `count` entries of an index."""
    return numpy.frombuffer(buffer, ENTRY.dtype, count)


def count_entries(buffer: bytes | memoryview) -> int:
    """How many entries stand before the zeros that end an index."""
    high = len(buffer) // ENTRY_BYTES
    words = numpy.frombuffer(buffer, numpy.uint64, high * _ENTRY_WORDS).reshape(high, _ENTRY_WORDS)
    while high:
        low = max(high - _LOOK_BACK, 0)
        found = numpy.flatnonzero(words[low:high].any(axis=1))
        if len(found):
            return int(low + found[-1] + 1)
        high = low
    return 0


class Runs(NamedTuple):
    """Neighbouring entries that are equal, each run one batch. One array element a run."""

    starts: NDArray[numpy.int64]
    """Position of the first entry of the run."""
    counts: NDArray[numpy.int64]
    entries: Entries
    """One entry of each run."""


def find_runs(entries: Entries) -> Runs:
    """Where one batch ends and the next begins."""
    count = len(entries)
    if not count:
        none = numpy.zeros(0, numpy.int64)
        return Runs(none, none, entries)
    words = numpy.ascontiguousarray(entries).view(numpy.uint64).reshape(count, -1)
    borders = numpy.flatnonzero((words[1:] != words[:-1]).any(axis=1)) + 1
    starts = numpy.concatenate(([0], borders)).astype(numpy.int64)
    counts = numpy.diff(numpy.append(starts, count))
    return Runs(starts, counts, entries[starts])


def keys_of(entries: Entries) -> NDArray[Any]:
    """The keys of these entries, as one void each."""
    raw = numpy.ascontiguousarray(entries).view(numpy.uint8).reshape(len(entries), ENTRY_BYTES)
    return numpy.ascontiguousarray(raw[:, KEY_AT:]).view(f"V{KEY_BYTES}").reshape(-1)


def group_by_key(runs: Runs) -> list[tuple[bytes, NDArray[numpy.int64]]]:
    """For every key, which of the runs are its own, in order."""
    if not len(runs.starts):
        return []
    keys = keys_of(runs.entries)
    parts = keys.view(numpy.uint8).reshape(len(keys), KEY_BYTES)
    # Half of the hash tells topics apart well enough to sort by; whether two keys were thrown
    # together is looked at afterwards.
    half = numpy.ascontiguousarray(parts[:, 8:16]).view(numpy.uint64).reshape(-1)
    number = numpy.ascontiguousarray(parts[:, 24:]).view(numpy.uint32).reshape(-1)
    mixed = half ^ (number.astype(numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15))
    order = numpy.argsort(mixed, kind="stable")
    borders = numpy.flatnonzero(numpy.diff(mixed[order])) + 1
    groups: list[tuple[bytes, NDArray[numpy.int64]]] = []
    for members in numpy.split(order, borders):
        first = keys[members[0]]
        if (parts[members] == parts[members[0]]).all():
            groups.append((first.tobytes(), members))
            continue
        apart: dict[bytes, list[int]] = {}
        for member in members.tolist():
            apart.setdefault(keys[member].tobytes(), []).append(member)
        groups += [(key, numpy.array(own, numpy.int64)) for key, own in apart.items()]
    return groups
