"""Where a data directory's cold tier is, and segments in an S3-compatible object store.

A server that is given a cold tier writes its address down, so that `headwater verify` finds the
frames of cold segments later without being given it again. Only the address: keys stay where the
server has them. The file is a hint and never decides anything for a server.

An object store is reached through pyarrow's file system; this is the only module that imports
pyarrow for that. An object appears whole when its upload is complete, so `put` needs no temporary
names; the index is uploaded last and stands for the whole segment. A store is named by a URL:
`s3://bucket/prefix?region=eu-west-1`. Credentials come from the usual places (environment, profile,
instance) or from the URL; `endpoint_override` names a server that is not Amazon's.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from headwater.core.errors import (
    DamageError,
    HeadwaterError,
    RequestError,
    StorageError,
    UnavailableError,
)
from headwater.disk import (
    Buffer,
    Disk,
    PosixDisk,
    have_directory,
    read_whole,
    replace_file,
)
from headwater.format.names import COLD_ADDRESS_NAME, TOPICS_DIRECTORY
from headwater.format.segment import (
    SegmentPart,
    parse_segment_file,
    parse_topic_directory_name,
    segment_file_name,
    topic_directory_name,
)
from headwater.format.snapshot import META_DIRECTORY
from headwater.store.appender import make_directories
from headwater.store.segment import file_work
from headwater.store.segment_stores import ColdTier, LocalColdTier

URL_START = "s3://"
RETRY_AFTER_MS = 5_000


class ObjectColdTier:
    """A bucket and a prefix with the layout of the data directory: topics/<id>/seg-*."""

    def __init__(self, url: str) -> None:
        if not url.startswith(URL_START):
            raise RequestError(f"a cold store is a directory or a URL with {URL_START}, not {url}")
        try:
            file_systems: Any = importlib.import_module("pyarrow.fs")
        except ImportError as error:
            raise RequestError(
                "object stores need the extra s3; install it with: pip install 'headwater[s3]'"
            ) from error
        try:
            self._files, root = file_systems.FileSystem.from_uri(url)
        except (OSError, ValueError) as error:
            raise RequestError(f"this is no address of an object store: {error}") from error
        self._root = str(root).rstrip("/")
        self._not_found = file_systems.FileType.NotFound

    def topic(self, topic_id: int) -> ObjectSegmentStore:
        prefix = f"{self._root}/{TOPICS_DIRECTORY}/{topic_directory_name(topic_id)}"
        return ObjectSegmentStore(self._files, prefix, self._not_found)

    def topic_ids(self) -> Sequence[int]:
        selector_class = importlib.import_module("pyarrow.fs").FileSelector
        prefix = f"{self._root}/{TOPICS_DIRECTORY}"
        with _store_work(prefix):
            listing = self._files.get_file_info(selector_class(prefix, allow_not_found=True))
        numbers = (parse_topic_directory_name(info.base_name) for info in listing)
        return sorted(number for number in numbers if number is not None)


class ObjectSegmentStore:
    """The segments of one topic under one prefix."""

    def __init__(self, files: Any, prefix: str, not_found: Any) -> None:
        self._files = files
        self._prefix = prefix
        self._not_found = not_found

    def put(self, first_seq: int, data: Buffer, idx: Buffer) -> None:
        self._delete(first_seq, SegmentPart.IDX)
        for part, contents in ((SegmentPart.DATA, data), (SegmentPart.IDX, idx)):
            path = self._path_of(first_seq, part)
            with _store_work(path):
                # Closing completes the upload. An error before it leaves no object at all.
                stream = self._files.open_output_stream(path)
                stream.write(contents)
                stream.close()

    def read_range(self, first_seq: int, part: SegmentPart, offset: int, length: int) -> bytes:
        path = self._path_of(first_seq, part)
        with _store_work(path), self._files.open_input_file(path) as file:
            contents = bytes(file.read_at(length, offset))
        if len(contents) < length:
            raise DamageError("the object ends too early", path=path, offset=offset + len(contents))
        return contents

    def delete(self, first_seq: int) -> None:
        self._delete(first_seq, SegmentPart.IDX)
        self._delete(first_seq, SegmentPart.DATA)

    def list(self) -> Sequence[int]:
        selector_class = importlib.import_module("pyarrow.fs").FileSelector
        with _store_work(self._prefix):
            listing = self._files.get_file_info(selector_class(self._prefix, allow_not_found=True))
        parsed = (parse_segment_file(info.base_name) for info in listing)
        return sorted({each[0] for each in parsed if each is not None})

    def exists(self, first_seq: int, part: SegmentPart) -> bool:
        return self._info(first_seq, part) is not None

    def len(self, first_seq: int, part: SegmentPart) -> int:
        size = self._info(first_seq, part)
        if size is None:
            raise DamageError(
                "an object that must be there is missing", path=self._path_of(first_seq, part)
            )
        return size

    def _path_of(self, first_seq: int, part: SegmentPart) -> str:
        return f"{self._prefix}/{segment_file_name(first_seq, part)}"

    def _info(self, first_seq: int, part: SegmentPart) -> int | None:
        path = self._path_of(first_seq, part)
        with _store_work(path):
            info = self._files.get_file_info(path)
        return None if info.type == self._not_found else int(info.size)

    def _delete(self, first_seq: int, part: SegmentPart) -> None:
        path = self._path_of(first_seq, part)
        if self._info(first_seq, part) is not None:
            with _store_work(path):
                self._files.delete_file(path)


def shown_address(address: str) -> str:
    """A cold tier's name as people may see it: keys and settings are left out."""
    if "://" not in address:
        return address
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def open_cold_tier(disk: Disk, address: str) -> ColdTier:
    """The cold tier a setting names: a directory, or the URL of an object store."""
    if address.startswith(URL_START):
        return ObjectColdTier(address)
    if "://" in address:
        raise RequestError(f"a cold store is a directory or a URL with {URL_START}, not {address}")
    root = PurePath(address)
    with file_work(root):
        if not disk.is_directory(root) or not disk.list_directory(root):
            make_directories(disk, root, ours=1)
    return LocalColdTier(disk, root)


@contextmanager
def _store_work(path: str) -> Iterator[None]:
    """What the store's errors mean: a missing object is damage, anything else may pass."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamageError("an object that must be there is missing", path=path) from error
    except PermissionError as error:
        raise StorageError(
            f"the object store refuses: {error}", path=path, advice="check the credentials"
        ) from error
    except HeadwaterError:
        raise
    except OSError as error:
        raise UnavailableError(
            f"the object store did not answer for {path}: {error}", RETRY_AFTER_MS
        ) from error


_VERSION: Final = 1
_BYTES_MAX: Final = 64 * 1024
_HARMLESS: Final = frozenset(
    {"region", "endpoint_override", "scheme", "force_virtual_addressing", "connect_timeout"}
)
"""Settings of a URL that say where a store is. Every other one may be a secret."""


class ColdAddress(msgspec.Struct, frozen=True):
    version: int
    address: str = msgspec.field(name="place")


def without_credentials(address: str) -> str:
    """The address of a cold tier with nothing in it that opens it."""
    if "://" not in address:
        return address
    parts = urlsplit(address)
    settings = [pair for pair in parse_qsl(parts.query) if pair[0] in _HARMLESS]
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, urlencode(settings), ""))


def remember_cold_tier(disk: Disk, directory: PurePath, address: str) -> None:
    """Write the address down, durably, unless it is there."""
    if "://" not in address and isinstance(disk, PosixDisk):
        address = disk.absolute(address)  # its reader may run in another directory
    address = without_credentials(address)
    if remembered_cold_tier(disk, directory) == address:
        return
    meta = directory / META_DIRECTORY
    have_directory(disk, meta)
    contents = msgspec.json.encode(ColdAddress(_VERSION, address)) + b"\n"
    replace_file(disk, meta / COLD_ADDRESS_NAME, contents)


def remembered_cold_tier(disk: Disk, directory: PurePath) -> str | None:
    """The address that was written down last; None when there is none that can be read."""
    path = directory / META_DIRECTORY / COLD_ADDRESS_NAME
    try:
        remembered = msgspec.json.decode(read_whole(disk, path, _BYTES_MAX), type=ColdAddress)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return remembered.address if remembered.version == _VERSION else None


def find_cold_tier(disk: Disk, address: str) -> ColdTier:
    """The tier at an address, to be read only: nothing is made that is not there.

    A tier without a single topic is refused too, because a volume that is not mounted looks so.
    """
    root = PurePath(address)
    if not address.startswith(URL_START) and "://" not in address and not disk.is_directory(root):
        raise UnavailableError(f"there is no directory {address}", RETRY_AFTER_MS)
    tier = open_cold_tier(disk, address)
    if not tier.topic_ids():
        raise UnavailableError(
            f"nothing is in {shown_address(address)}; is it the right place, and is it mounted?",
            RETRY_AFTER_MS,
        )
    return tier
