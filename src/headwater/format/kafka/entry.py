"""The dense index: 40 bytes for every record, in the order of their global ids.

All records of a batch have equal entries, which point at the batch. `physical_offset` is where the
batch's length prefix stands, so the batch behind it begins at `physical_offset + 4 + length`. An
entry of length 0 is dead: its batch was left out when its segment was rewritten. One that says log
2^32-1 besides is a hole: a repair gave the record up, and its offset stays taken. No entry is all
zeros, because no topic's hash is: zeros mean that the index ends.

Which topic an entry belongs to is a BLAKE3 of its name, keyed by the organisation. The only module
that imports that library.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from blake3 import blake3

from headwater.core.arrays import NDArray, numpy
from headwater.format.layout import Field, Layout

TOPIC_HASH_BYTES: Final = 16
_KEY_BYTES: Final = 32


def topic_hash(org: int, name: str) -> bytes:
    """16 bytes for a name; other bytes for the same name in another organisation."""
    salt = org.to_bytes(8, "little")
    hasher = blake3(salt + name.encode(), key=salt.ljust(_KEY_BYTES, b"\0"))
    return hasher.digest(length=TOPIC_HASH_BYTES)


def key_text(org: int, hashed: bytes, partition: int) -> str:
    """A partition's key, as people and spans see it: `{org}-{hash in decimal}-{partition}`."""
    return f"{org}-{int.from_bytes(hashed, 'little')}-{partition}"


ENTRY: Final = Layout(
    "offset index entry",
    (
        Field("segment_id", "u32", "number of the .log file; 2^32-1 in a hole"),
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
HOLE_SEGMENT: Final = 2**32 - 1
"""What stands for the log of a record that a repair gave up. No log has that number."""
KEY_AT: Final = ENTRY.offset_of("org_id")
KEY_BYTES: Final = ENTRY_BYTES - KEY_AT

_ENTRY_WORDS: Final = ENTRY_BYTES // 8
_SPREAD: Final = 0x9E3779B97F4A7C15
"""Keeps the partitions of a topic apart when entries are sorted by a mix of their keys."""
_SCAN_ENTRIES: Final = 65_536
"""Entries that are read in one step when the end of an index is searched for."""

Entries: TypeAlias = "NDArray[Any]"
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
    address = segment.to_bytes(4, "little") + offset.to_bytes(4, "little")
    return (address + length.to_bytes(4, "little") + key) * records


def read_entries(buffer: bytes | memoryview, count: int) -> Entries:
    """The first `count` entries of an index."""
    return numpy.frombuffer(buffer, ENTRY.dtype, count)


def count_entries(buffer: bytes | memoryview) -> int:
    """How many entries stand before the zeros that end an index."""
    high = len(buffer) // ENTRY_BYTES
    words = numpy.frombuffer(buffer, numpy.uint64, high * _ENTRY_WORDS).reshape(high, _ENTRY_WORDS)
    while high:
        low = max(high - _SCAN_ENTRIES, 0)
        used = numpy.flatnonzero(words[low:high].any(axis=1))
        if len(used):
            return int(low + used[-1] + 1)
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


def holes_in(entries: Entries) -> NDArray[numpy.bool_]:
    """Which of these entries are of records that a repair gave up."""
    holes: NDArray[numpy.bool_] = entries["segment_id"] == HOLE_SEGMENT
    holes &= entries["length"] == 0
    return holes


def keys_of(entries: Entries) -> NDArray[Any]:
    """The keys of these entries, as one void each."""
    raw = numpy.ascontiguousarray(entries).view(numpy.uint8).reshape(len(entries), ENTRY_BYTES)
    return numpy.ascontiguousarray(raw[:, KEY_AT:]).view(f"V{KEY_BYTES}").reshape(-1)


def group_by_key(runs: Runs) -> Iterator[tuple[bytes, NDArray[numpy.int64]]]:
    """For every key, which of the runs are its own, in order."""
    count = len(runs.starts)
    if not count:
        return
    parts = keys_of(runs.entries).view(numpy.uint8).reshape(count, KEY_BYTES)
    # Half of the hash tells topics apart well enough to sort by; whether two keys were thrown
    # together is checked afterwards.
    half = numpy.ascontiguousarray(parts[:, 8:16]).view(numpy.uint64).reshape(-1)
    number = numpy.ascontiguousarray(parts[:, 24:]).view(numpy.uint32).reshape(-1)
    mixed = half ^ (number.astype(numpy.uint64) * _SPREAD)
    order = numpy.argsort(mixed, kind="stable")
    ordered, ordered_parts = mixed[order], parts[order]
    borders = numpy.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    changes = numpy.flatnonzero((ordered_parts[1:] != ordered_parts[:-1]).any(axis=1)) + 1
    bounds = [0, *borders.tolist(), count]
    firsts = ordered_parts[bounds[:-1]].tobytes()
    thrown_together = len(changes) != len(borders)
    for at, (low, high) in enumerate(itertools.pairwise(bounds)):
        if thrown_together:
            yield from _apart(ordered_parts[low:high], order[low:high])
        else:
            yield firsts[at * KEY_BYTES : (at + 1) * KEY_BYTES], order[low:high]


def _apart(
    parts: NDArray[numpy.uint8], members: NDArray[numpy.int64]
) -> Iterator[tuple[bytes, NDArray[numpy.int64]]]:
    """The same, one by one, for keys that were sorted as if they were equal."""
    apart: dict[bytes, list[int]] = {}
    for part, member in zip(parts, members.tolist(), strict=True):
        apart.setdefault(part.tobytes(), []).append(member)
    for key, own in apart.items():
        yield key, numpy.array(own, numpy.int64)
