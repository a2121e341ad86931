"""The shared log's files as memory, and from global ids to batches: which entries, which log.

Indexes and logs are mapped when they are first read. A sealed file never changes, so its map is
good for ever. The active segment grows: its map is good for what was there when it was made, and is
made again for what came later. A slice of a map keeps its bytes readable for as long as a reader
holds it, even when the file is gone.

Beside them lies room for the next checkpoint, put aside: on a full disk nothing can be given back
without one. When a checkpoint finds none, that file goes and the checkpoint is written again; the
old checkpoint's room then becomes the file's.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import OrderedDict
from pathlib import PurePath
from typing import Final, NamedTuple, TypeAlias

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import DamageError
from headwater.core.units import KIB
from headwater.disk import Disk, OpenMode, map_file, opened
from headwater.format.kafka.entry import ENTRY_BYTES, Entries, read_entries
from headwater.format.kafka.names import SPARE_NAME, index_name, log_name

MAPS_MAX: Final = 128


class KafkaSegmentFiles:
    """Safe to use from several threads."""

    def __init__(self, disk: Disk, directory: PurePath, maps_max: int = MAPS_MAX) -> None:
        self._disk = disk
        self._directory = directory
        self._maps_max = maps_max
        self._lock = threading.Lock()
        self._maps: OrderedDict[str, tuple[memoryview, int]] = OrderedDict()
        self._forgotten = 0
        """How often files became others: what was opened before that is not kept behind it."""

    def path_of(self, name: str) -> PurePath:
        return self._directory / name

    def entries(self, number: int, count: int) -> Entries:
        """The first `count` entries of an index, all of which were written before the call."""
        view = self._view(index_name(number), count * ENTRY_BYTES)
        return read_entries(view, count)

    def log(self, number: int, size: int) -> memoryview:
        """The first `size` bytes of a log, all of which were written before the call."""
        return self._view(log_name(number), size)

    def forget(self, number: int) -> None:
        """The files of this number are gone, or are others now."""
        with self._lock:
            self._forgotten += 1
            self._maps.pop(log_name(number), None)
            self._maps.pop(index_name(number), None)

    def clear(self) -> None:
        with self._lock:
            self._forgotten += 1
            self._maps.clear()

    def _view(self, name: str, size: int) -> memoryview:
        with self._lock:
            known = self._maps.get(name)
            if known is not None and known[1] >= size:
                self._maps.move_to_end(name)
                return known[0]
            forgotten = self._forgotten
        path = self._directory / name
        view = map_file(self._disk, path)
        if len(view) < size:
            raise DamageError(
                f"the file ends before byte {size}",
                path=path,
                offset=len(view),
                advice="restore a backup",
            )
        with self._lock:
            if forgotten != self._forgotten:
                return view
            self._maps[name] = (view, size)
            self._maps.move_to_end(name)
            while len(self._maps) > self._maps_max:
                self._maps.popitem(last=False)
        return view


Ids: TypeAlias = "NDArray[numpy.uint64]"


class SegmentTable(NamedTuple):
    """All indexes in the order of global ids. Never changed, only replaced."""

    numbers: tuple[int, ...]
    base_ids: NDArray[numpy.uint64]
    """Global id of the first entry of each."""
    end_ids: NDArray[numpy.uint64]
    """The id behind the last one; where a segment was deleted, the next begins later than that."""

    def position(self, global_id: int | numpy.uint64) -> int:
        """Which of them has this id. FileNotFoundError when it went with its segment."""
        at = int(numpy.searchsorted(self.base_ids, numpy.uint64(global_id), "right")) - 1
        if at < 0 or global_id >= self.end_ids[at]:
            raise FileNotFoundError(errno.ENOENT, f"record {global_id} went with its segment")
        return at


class Batches(NamedTuple):
    """Batches of one partition, in order; one array element each."""

    first: NDArray[numpy.int64]
    """Position of the batch's first id in the ids that were asked for."""
    entries: Entries


def locate(files: KafkaSegmentFiles, table: SegmentTable, ids: Ids) -> Batches:
    """The batches that these ids, of one partition and sorted, belong to.

    FileNotFoundError when one of them, or the file it should be in, is gone.
    """
    chosen: list[Entries] = []
    low = 0
    while low < len(ids):
        at = table.position(ids[low])
        high = int(numpy.searchsorted(ids, table.end_ids[at], "left"))
        base = table.base_ids[at]
        # No more than is needed: what is mapped of the active segment may end just there.
        count = int(ids[high - 1] - base) + 1
        entries = files.entries(table.numbers[at], count)
        chosen.append(entries[(ids[low:high] - base).astype(numpy.int64)])
        low = high
    entries = chosen[0] if len(chosen) == 1 else numpy.concatenate(chosen)
    positions = entries["segment_id"].astype(numpy.uint64) << numpy.uint64(32)
    positions |= entries["physical_offset"]
    first = numpy.concatenate(([0], numpy.flatnonzero(numpy.diff(positions)) + 1))
    return Batches(first.astype(numpy.int64), entries[first])


def count_before(files: KafkaSegmentFiles, table: SegmentTable, first_id: int, records: int) -> int:
    """How many records of the batch with this id stand before it, given how many it has."""
    at = table.position(first_id)
    position = first_id - int(table.base_ids[at])
    if position == 0 or records <= 1:
        return 0
    low = max(position - records + 1, 0)
    entries = files.entries(table.numbers[at], position + 1)[low : position + 1]
    own = entries[-1]
    same = (entries["physical_offset"] == own["physical_offset"]) & (
        entries["segment_id"] == own["segment_id"]
    )
    other = numpy.flatnonzero(~same)
    return len(entries) - 1 - (int(other[-1]) + 1 if len(other) else 0)


_STEP_BYTES: Final = 64 * KIB


class SpareRoom:
    def __init__(self, disk: Disk, directory: PurePath) -> None:
        self._disk = disk
        self._path = directory / SPARE_NAME
        self._size = 0

    def keep(self, size: int) -> None:
        """Have room for a checkpoint of this size, if there is any."""
        wanted = (size // _STEP_BYTES + 1) * _STEP_BYTES
        if self._size >= wanted:
            return
        with contextlib.suppress(OSError):
            self.give_up()
            with opened(self._disk, self._path, OpenMode.CREATE) as file:
                file.allocate(wanted)
                self._size = wanted
        if not self._size:
            with contextlib.suppress(OSError):
                self.give_up()

    def give_up(self) -> bool:
        """Whether there was any."""
        self._size = 0
        try:
            self._disk.unlink(self._path)
        except FileNotFoundError:
            return False
        return True
