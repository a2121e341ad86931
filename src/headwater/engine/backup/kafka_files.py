"""Kafka's shared log in a backup: the checkpoint, every index, every log, as one moment had them.

The checkpoint is read first, then the indexes are measured, then everything is copied: an entry is
written after its batch, so every batch a copied entry points at is there. What the owner adds in
the meantime is left out. A segment that is rewritten or removed while it is copied shows in the
checkpoint that is read at the end, and the pass begins again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from headwater.core.errors import DamageError, FormatError
from headwater.disk import Disk, File, OpenMode, file_bytes, opened, read_all
from headwater.engine.backup.archive import ArchiveWriter, read_chunks
from headwater.format.backup import BackupMember
from headwater.format.kafka.batch import read_sound
from headwater.format.kafka.checkpoint import KafkaCheckpoint, decode_checkpoint
from headwater.format.kafka.entry import (
    ENTRY_BYTES,
    PREFIX_BYTES,
    count_entries,
    find_runs,
    read_entries,
)
from headwater.format.kafka.names import (
    CHECKPOINT_NAME,
    KAFKA_DIRECTORY,
    KafkaFile,
    index_name,
    log_name,
    parse_name,
)
from headwater.recovery.kafka.repair import recover_kafka
from headwater.store.kafka.files import KafkaSegmentFiles
from headwater.store.segment import SegmentChangedError

_ENTRIES_AT_ONCE: Final = 16_384


@dataclass(frozen=True, slots=True)
class _Length:
    """How much of a segment is copied."""

    entries: int
    log_end: int
    """Behind the batch of the last entry."""


def kafka_bytes(disk: Disk, directory: PurePath) -> int:
    """About how long the files are."""
    kafka_directory = directory / KAFKA_DIRECTORY
    if not disk.is_directory(kafka_directory):
        return 0
    total = 0
    for name in disk.list_directory(kafka_directory):
        with contextlib.suppress(FileNotFoundError):  # the owner goes on meanwhile
            total += file_bytes(disk, kafka_directory / name)
    return total


def copy_kafka(disk: Disk, archive: ArchiveWriter, directory: PurePath) -> list[BackupMember]:
    """Nothing when there is no such log."""
    kafka_directory = directory / KAFKA_DIRECTORY
    if not disk.is_directory(kafka_directory) or not disk.exists(kafka_directory / CHECKPOINT_NAME):
        return []
    contents = read_all(disk, kafka_directory / CHECKPOINT_NAME)
    checkpoint = _decode(contents, kafka_directory)
    logs, indexes = _numbers(disk, kafka_directory)
    lengths = {number: _measure(disk, kafka_directory, number) for number in sorted(indexes)}
    written = [number for number, length in lengths.items() if length.entries]
    active = max([*written, *(each.number for each in checkpoint.segments)], default=-1)
    members = [archive.add(f"{KAFKA_DIRECTORY}/{CHECKPOINT_NAME}", [contents], len(contents))]
    for number, length in lengths.items():
        size = length.entries * ENTRY_BYTES
        members.append(_copy(disk, archive, kafka_directory, index_name(number), size))
    for number in sorted(logs):
        end = lengths[number].log_end if number == active and number in lengths else None
        members.append(_copy(disk, archive, kafka_directory, log_name(number), end))
    _check_unchanged(disk, kafka_directory, checkpoint)
    return members


def _check_unchanged(disk: Disk, directory: PurePath, checkpoint: KafkaCheckpoint) -> None:
    """All segments but the last are still what they were."""
    now = _decode(read_all(disk, directory / CHECKPOINT_NAME), directory)
    sealed = checkpoint.segments[:-1]
    if now.segments[: len(sealed)] != sealed:
        raise SegmentChangedError("segments of Kafka's log were rewritten or removed meanwhile")


def _decode(contents: bytes, directory: PurePath) -> KafkaCheckpoint:
    try:
        return decode_checkpoint(contents)
    except FormatError as error:
        path = directory / CHECKPOINT_NAME
        raise DamageError(error.reason, path=path, offset=error.offset) from error


def _numbers(disk: Disk, directory: PurePath) -> tuple[set[int], set[int]]:
    names = [parse_name(name) for name in disk.list_directory(directory)]
    logs = {each[0] for each in names if each is not None and each[1] is KafkaFile.LOG}
    return logs, {each[0] for each in names if each is not None and each[1] is KafkaFile.INDEX}


def _measure(disk: Disk, directory: PurePath, number: int) -> _Length:
    """By reading, not by a map: the owner may cut the file while it is read."""
    with _opened(disk, directory / index_name(number)) as file:
        high = file.size() // ENTRY_BYTES
        while high:
            low = max(high - _ENTRIES_AT_ONCE, 0)
            block = file.read(low * ENTRY_BYTES, (high - low) * ENTRY_BYTES)
            count = count_entries(block)
            if count:
                last = read_entries(block, count)[-1]
                end = int(last["physical_offset"]) + PREFIX_BYTES + int(last["length"])
                return _Length(low + count, end)
            high = low
        return _Length(0, 0)


def _copy(
    disk: Disk, archive: ArchiveWriter, directory: PurePath, name: str, size: int | None
) -> BackupMember:
    with _opened(disk, directory / name) as file:
        length = file.size() if size is None else size
        return archive.add(f"{KAFKA_DIRECTORY}/{name}", read_chunks(file, 0, length), length)


@contextlib.contextmanager
def _opened(disk: Disk, path: PurePath) -> Iterator[File]:
    try:
        with opened(disk, path, OpenMode.READ) as file:
            yield file
    except FileNotFoundError as error:
        raise SegmentChangedError(f"{path.name} is gone meanwhile") from error


# -- the way back


def check_kafka(disk: Disk, directory: PurePath) -> None:
    """Read a restored log as a start would; damage is an error."""
    kafka_directory = directory / KAFKA_DIRECTORY
    if disk.is_directory(kafka_directory):
        recover_kafka(disk, kafka_directory)


def read_every_batch(disk: Disk, directory: PurePath) -> int:
    """Check the CRC of every live batch. Gives the number of records in them."""
    kafka_directory = directory / KAFKA_DIRECTORY
    recovered = recover_kafka(disk, kafka_directory) if disk.is_directory(kafka_directory) else None
    if recovered is None:
        return 0
    files, records = KafkaSegmentFiles(disk, kafka_directory), 0
    for segment in recovered.segments:
        runs = find_runs(files.entries(segment.number, segment.entries))
        for entry in runs.entries[runs.entries["length"] > 0]:
            begin = int(entry["physical_offset"]) + PREFIX_BYTES
            end = begin + int(entry["length"])
            number = int(entry["segment_id"])
            try:
                header = read_sound(bytes(files.log(number, end)[begin:end]))
            except FormatError as error:
                path = kafka_directory / log_name(number)
                offset = begin + error.offset
                raise DamageError(error.reason, path=path, offset=offset) from error
            records += header.record_count
    files.clear()
    return records
