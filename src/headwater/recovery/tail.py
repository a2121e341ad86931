"""The end of a log file: bytes that were written ahead or never acknowledged, and what makes the
rest of it durable.

A log file is made of zeros before it is written, so zeros at its end are nothing. What is behind
the last whole write was never acknowledged: a copy goes to quarantine, then it is zeros again. The
file is not made shorter: the space stays allocated, and the length keeps telling whether the file
was cut.

What no witness covers may be in memory only, left there by a process that was killed, or by a sync
that failed: then the kernel holds pages that it calls clean and never wrote, and the next sync
succeeds without them (docs/decisions/0009). So it is written once more before it is synced.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from headwater.core.units import KIB, MIB
from headwater.disk import Buffer, Disk, File, OpenMode, sync_file, write_all
from headwater.recovery.quarantine import keep_stretch
from headwater.store.pair import with_file

CHUNK_BYTES: Final = MIB
_ZEROS: Final = bytes(64 * KIB)


def used_bytes(contents: bytes) -> int:
    """Without the zeros at the end. Most of a file may be zeros: they are compared, not read one by
    one."""
    end = len(contents)
    while contents.endswith(_ZEROS, 0, end):
        end -= len(_ZEROS)
    begin = max(end - len(_ZEROS), 0)
    return begin + len(contents[begin:end].rstrip(b"\0"))


def has_bytes(file: File, begin: int) -> bool:
    """Whether anything but zeros is behind here."""
    size = file.size()
    chunks = (file.read(at, min(CHUNK_BYTES, size - at)) for at in range(begin, size, CHUNK_BYTES))
    return any(used_bytes(chunk) for chunk in chunks)


def cut_tail(disk: Disk, path: PurePath, end: int) -> None:
    """Put a copy of what is behind aside, then overwrite it with zeros."""

    def work(file: File) -> None:
        tail = file.read(end, max(file.size() - end, 0))
        used = used_bytes(tail)
        keep_stretch(disk, path, end, tail[:used], "torn")
        for at in range(0, used, CHUNK_BYTES):
            write_all(file, end + at, [bytes(min(CHUNK_BYTES, used - at))])
        sync_file(file)

    with_file(disk, path, OpenMode.UPDATE, work)


def write_again(file: File, start: int, stop: int) -> None:
    """The bytes of a stretch, as they are. The caller syncs the file."""
    for at in range(start, stop, CHUNK_BYTES):
        contents: Buffer = file.read(at, min(CHUNK_BYTES, stop - at))
        if contents:
            write_all(file, at, [contents])
