"""Where segments can live: one small protocol, and the store that is a local directory.

A store holds the segments of one topic. Its calls are synchronous and may be slow, so they belong
into the reader pool and the keeper, never onto the path of a write (claim 289).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Protocol

from headwater.core.errors import DamageError
from headwater.disk import (
    Buffer,
    Disk,
    file_bytes,
    read_range,
    remove_files,
    replace_file,
)
from headwater.disk.whole_files import TEMPORARY_SUFFIX
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import (
    SegmentPart,
    parse_segment_file,
    parse_topic_directory_name,
    segment_file_name,
    topic_directory_name,
)
from headwater.store.appender import make_directories
from headwater.store.segment import file_work


class SegmentStore(Protocol):
    """The segments of one topic in one tier. A segment's id is its first seq."""

    def put(self, first_seq: int, data: Buffer, idx: Buffer) -> None:
        """Both parts are durable on return. What was there under this id is replaced."""

    def read_range(self, first_seq: int, part: SegmentPart, offset: int, length: int) -> bytes:
        """Exactly these bytes; fewer than asked for is a StorageError."""

    def delete(self, first_seq: int) -> None:
        """Remove both parts. No error when they are not there."""

    def list(self) -> Sequence[int]:
        """The ids of segments of which anything is there, ascending."""

    def exists(self, first_seq: int, part: SegmentPart) -> bool: ...

    def len(self, first_seq: int, part: SegmentPart) -> int:
        """Bytes of one part; a part that is not there is a StorageError."""


class ColdTier(Protocol):
    """Gives each topic its store."""

    def topic(self, topic_id: int) -> SegmentStore: ...

    def topic_ids(self) -> Sequence[int]:
        """The topics of which anything is there, ascending."""


class LocalSegmentStore:
    """A directory. The index is written last, so a segment with an index is whole."""

    def __init__(self, disk: Disk, root: PurePath) -> None:
        self._disk = disk
        self._root = root

    def path_of(self, first_seq: int, part: SegmentPart) -> PurePath:
        return self._root / segment_file_name(first_seq, part)

    def put(self, first_seq: int, data: Buffer, idx: Buffer) -> None:
        with file_work(self._root):
            make_directories(self._disk, self._root)
            # An index of earlier bytes must not stand beside new data.
            self._remove(first_seq, SegmentPart.IDX)
            replace_file(self._disk, self.path_of(first_seq, SegmentPart.DATA), data)
            replace_file(self._disk, self.path_of(first_seq, SegmentPart.IDX), idx)

    def read_range(self, first_seq: int, part: SegmentPart, offset: int, length: int) -> bytes:
        path = self.path_of(first_seq, part)
        with file_work(path):
            contents = read_range(self._disk, path, offset, length)
        if len(contents) < length:
            raise DamageError("the file ends too early", path=path, offset=offset + len(contents))
        return contents

    def delete(self, first_seq: int) -> None:
        with file_work(self._root):
            self._remove(first_seq, SegmentPart.IDX)
            self._remove(first_seq, SegmentPart.DATA)

    def list(self) -> Sequence[int]:
        with file_work(self._root):
            if not self._disk.is_directory(self._root):
                return []
            names = self._disk.list_directory(self._root)
        return sorted({each[0] for each in map(parse_segment_file, names) if each is not None})

    def exists(self, first_seq: int, part: SegmentPart) -> bool:
        return self._disk.exists(self.path_of(first_seq, part))

    def len(self, first_seq: int, part: SegmentPart) -> int:
        path = self.path_of(first_seq, part)
        with file_work(path):
            return file_bytes(self._disk, path)

    def _remove(self, first_seq: int, part: SegmentPart) -> None:
        path = self.path_of(first_seq, part)
        remove_files(self._disk, [path, temporary_path(path)])


def temporary_path(path: PurePath) -> PurePath:
    """Where `replace_file` puts the new bytes before they get their name."""
    return path.with_name(path.name + TEMPORARY_SUFFIX)


class LocalColdTier:
    """A second directory with the layout of the first: topics/<id>/seg-*."""

    def __init__(self, disk: Disk, root: PurePath) -> None:
        self._disk = disk
        self._topics = root / TOPICS_DIRECTORY

    def topic(self, topic_id: int) -> LocalSegmentStore:
        return LocalSegmentStore(self._disk, self._topics / topic_directory_name(topic_id))

    def topic_ids(self) -> Sequence[int]:
        if not self._disk.is_directory(self._topics):
            return []
        with file_work(self._topics):
            names = self._disk.list_directory(self._topics)
        return sorted(n for n in map(parse_topic_directory_name, names) if n is not None)
