"""What the machines' log counts about itself, in one answer."""

from __future__ import annotations

from headwater.engine.machines.answers import WalStats
from headwater.engine.machines.book import Book
from headwater.engine.machines.log_reader import ReadCounters
from headwater.format.machines.names import segment_of, within_segment
from headwater.wal.shard import Shard


def statistics_of(
    book: Book, shard: Shard, reading: ReadCounters, damaged_entries: int
) -> WalStats:
    end = book.committed_offset
    newest, oldest = segment_of(end), min(book.oldest_segment, segment_of(end))
    first = book.first_sequence.get(oldest, book.committed_sequence)
    counters = shard.counters
    return WalStats(
        end,
        book.latest_offset,
        newest - oldest + 1,
        (newest - oldest) * book.segment_bytes + within_segment(end),
        oldest,
        newest,
        book.committed_sequence - first,
        damaged_entries,
        counters.bytes_written,
        reading.bytes_read,
        counters.groups,
        reading.reads,
        counters.syncs,
        shard.state.value,
    )
