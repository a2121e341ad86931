"""The batches of Kafka's shared log one after the other, each held against its index entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from headwater.core.errors import FormatError
from headwater.format.kafka.batch import BatchHeader, read_sound
from headwater.format.kafka.entry import PREFIX_BYTES, Entries, find_runs, keys_of


class ReadableLog(Protocol):
    """The bytes of a `.log` file: mapped, or read when somebody asks for them."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> memoryview: ...


class Walked(NamedTuple):
    offset: int
    end: int
    records: int
    key: bytes
    header: BatchHeader | None
    bytes: memoryview
    problem: str


def walk_batches(number: int, entries: Entries, log: ReadableLog, offset: int) -> Iterator[Walked]:
    """The batches these entries point at, each with what is wrong with it, until one is."""
    runs = find_runs(entries)
    keys = keys_of(runs.entries)
    nothing = memoryview(b"")
    for at, count in enumerate(runs.counts.tolist()):
        entry = runs.entries[at]
        key = keys[at].tobytes()
        length = int(entry["length"])
        begin = offset + PREFIX_BYTES
        end = begin + length
        problem, header, batch = "", None, nothing
        if int(entry["segment_id"]) != number or int(entry["physical_offset"]) != offset:
            problem = "the entries do not follow those before them"
        elif end > len(log) or int.from_bytes(log[offset:begin], "little") != length:
            problem = "the length before the batch is not that of its entries"
        else:
            batch = log[begin:end]
            try:
                header = read_sound(batch)
            except FormatError as error:
                problem = error.reason
            if header is not None and header.record_count != count:
                problem = f"{count} entries for {header.record_count} records"
        yield Walked(offset, end, count, key, header, batch, problem)
        offset = end
