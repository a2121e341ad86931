"""The backup's file: written from front to back under a temporary name; reading compares every
length and checksum with the manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Final

from headwater.core.errors import DamageError, FormatError, NewerFormatError, RequestError
from headwater.core.units import MIB
from headwater.disk import Buffer, Disk, File, OpenMode, sync_file, sync_names, write_all
from headwater.disk.whole_files import TEMPORARY_SUFFIX
from headwater.format.backup import (
    BLOCK_BYTES,
    END,
    HEADING,
    HEADING_NAME,
    MANIFEST_NAME,
    BackupMember,
    Manifest,
    check_heading,
    decode_header,
    decode_manifest,
    encode_header,
    encode_manifest,
    padding,
)
from headwater.format.checksum import RunningChecksum
from headwater.format.frame import UnknownFrameError
from headwater.recovery.directory import accessing
from headwater.store.segment import SegmentChangedError, file_work

CHUNK_BYTES: Final = 4 * MIB

_ENDS_EARLY: Final = "the backup ends before its manifest: it was cut, or never finished"
Advance = Callable[[int], None]
Headers = dict[int, tuple[str, int]]
"""Where a member's bytes begin -> its name and length."""


class ArchiveWriter:
    """Under `FILE.tmp` until `finish`; `discard` leaves nothing."""

    def __init__(self, disk: Disk, path: PurePath, created_ms: int, advance: Advance) -> None:
        self._disk = disk
        self._path = path
        self._temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        self._created_ms = created_ms
        self._advance = advance
        self._offset = 0
        self.failed = False
        """The file itself cannot be written: trying again would not help."""
        with file_work(path):
            if disk.exists(self._temporary):
                disk.unlink(self._temporary)  # left by a crash; it was never a backup
            self._file = disk.open(self._temporary, OpenMode.CREATE)
        self.add(HEADING_NAME, [HEADING], len(HEADING))

    def add(
        self, name: str, chunks: Iterable[Buffer], size: int, file_bytes: int | None = None
    ) -> BackupMember:
        """Write one file of `size` bytes. When there are fewer, it does not count."""
        self._write(encode_header(name, size, self._created_ms))
        start = self._offset
        checksum = RunningChecksum()
        for chunk in chunks:
            checksum.update(chunk)
            self._write(chunk)
            self._advance(len(chunk))
        written = self._offset - start
        if written > size:
            raise DamageError(f"{name} has more bytes than it had", path=self._path)
        self._write(bytes(size - written + padding(size)))
        if written < size:
            raise SegmentChangedError(f"{name} became shorter while it was read")
        full = size if file_bytes is None else file_bytes
        return BackupMember(name, start, size, f"{checksum.value():016x}", full)

    def finish(self, manifest: Manifest) -> int:
        """Durable under its name on return; gives its length."""
        contents = encode_manifest(manifest)
        self.add(MANIFEST_NAME, [contents], len(contents))
        self._write(END)
        with file_work(self._path):
            sync_file(self._file)
            self._file.close()
            self._disk.rename(self._temporary, self._path)
            sync_names(self._disk, self._path.parent)
        return self._offset

    def discard(self) -> None:
        with file_work(self._path):
            self._file.close()
            if self._disk.exists(self._temporary):
                self._disk.unlink(self._temporary)

    def _write(self, data: Buffer) -> None:
        self.failed = True
        with file_work(self._temporary):
            self._offset += write_all(self._file, self._offset, [data])
        self.failed = False


class ArchiveReader:
    """An open backup whose manifest is sound. Files are checked as they are read."""

    def __init__(self, disk: Disk, path: PurePath) -> None:
        self._path = path
        with accessing(path):
            if not disk.exists(path):
                raise RequestError(f"there is no file {path}; check the path")
            if disk.is_directory(path):
                raise RequestError(f"{path} is a directory, not a backup")
            self._file = disk.open(path, OpenMode.READ)
        try:
            self.bytes = self._file.size()
            self.manifest = self._find_manifest()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    def read(self, member: BackupMember) -> Iterator[bytes]:
        """The bytes of a file; DamageError at the end when they are not what was written."""
        checksum = RunningChecksum()
        for chunk in read_chunks(self._file, member.offset, member.bytes):
            checksum.update(chunk)
            yield chunk
        if f"{checksum.value():016x}" != member.xxh3:
            what = f"{member.name} in the backup is damaged: checksum does not match"
            raise self._damaged(what, member.offset)

    def _find_manifest(self) -> Manifest:
        offset = 0
        headers: Headers = {}
        while True:
            block = self._file.read(offset, BLOCK_BYTES)
            if len(block) < BLOCK_BYTES:
                raise self._refusal(offset, _ENDS_EARLY)
            try:
                header = decode_header(block)
                if offset == 0:
                    heading = self._file.read(BLOCK_BYTES, BLOCK_BYTES)
                    check_heading(heading if header and header[0] == HEADING_NAME else b"")
                if header is None:
                    raise self._refusal(offset, _ENDS_EARLY)
            except UnknownFrameError as error:
                raise NewerFormatError(error.reason, path=self._path) from error
            except FormatError as error:
                raise self._refusal(offset, _damage(error)) from error
            name, size = header
            start = offset + BLOCK_BYTES
            headers[start] = header
            if name == MANIFEST_NAME:
                return self._check_manifest(start, size, headers)
            offset = start + size + padding(size)

    def _refusal(self, offset: int, what: str) -> Exception:
        if offset == 0:
            return RequestError(f"{self._path} is not a backup of Headwater")
        return self._damaged(what, offset)

    def _damaged(self, what: str, offset: int) -> DamageError:
        return DamageError(what, path=self._path, offset=offset, advice="use another backup")

    def _check_manifest(self, start: int, size: int, headers: Headers) -> Manifest:
        contents = self._file.read(start, size)
        try:
            if len(contents) < size:
                raise self._refusal(start, _ENDS_EARLY)
            manifest = decode_manifest(contents)
        except FormatError as error:
            raise self._refusal(start, _damage(error)) from error
        for member in manifest.members:
            if headers.get(member.offset) != (member.name, member.bytes):
                raise self._damaged(f"{member.name} is not where the manifest says", member.offset)
        return manifest


def _damage(error: FormatError) -> str:
    return f"the backup is damaged: {error.reason}"


def read_chunks(file: File, offset: int, length: int) -> Iterator[bytes]:
    """A range of a file, chunk by chunk; fewer bytes than `length` when it ends early."""
    end = offset + length
    while offset < end:
        chunk = file.read(offset, min(CHUNK_BYTES, end - offset))
        if not chunk:
            return
        yield chunk
        offset += len(chunk)
