"""Backups: one plain tar file that any tar can list and unpack.

The first member says what it is. Then come files of the data directory, under the names they have
there; where a name comes twice, the later one counts. The last member is the manifest: every file
that counts with its position, length and XXH3-64, and what each topic held. It has a checksum of
its own. A backup without a whole manifest was interrupted and is refused.
"""

from __future__ import annotations

import tarfile
from typing import Final

import msgspec

from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.frame import UnknownFrameError
from headwater.format.kafka.names import CHECKPOINT_NAME, KAFKA_DIRECTORY
from headwater.format.kafka.names import parse_name as parse_kafka_name
from headwater.format.machines.names import MACHINES_DIRECTORY, is_machine_file
from headwater.format.names import (
    CURRENT_NAME,
    REPAIRS_NAME,
    TOPICS_DIRECTORY,
    WAL_DIRECTORY,
    parse_shard_directory_name,
    parse_wal_file_name,
)
from headwater.format.segment import parse_segment_name, parse_topic_directory_name
from headwater.format.snapshot import META_DIRECTORY, parse_snapshot_name

BACKUP_VERSION: Final = 1
BLOCK_BYTES: Final = tarfile.BLOCKSIZE
HEADING_NAME: Final = "HEADWATER-BACKUP"
HEADING: Final = b"headwater backup %d\n" % BACKUP_VERSION
MANIFEST_NAME: Final = "MANIFEST"
END: Final = bytes(2 * BLOCK_BYTES)
"""What every tar file ends with."""

_CHECKSUM_LINE: Final = b"\nxxh3="


class BackupMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file that counts."""

    name: str
    offset: int
    """Where its bytes begin in the backup."""
    bytes: int
    xxh3: str
    """XXH3-64 of its bytes, in hexadecimal."""
    file_bytes: int
    """Its length in a data directory: what is missing is zeros."""


class BackupTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a topic held, to be found again after restoring."""

    name: str
    topic_id: int
    epoch: int
    head_seq: int
    earliest_seq: int
    evict_floor: int
    count: int
    bytes: int
    index_xxh3: str
    """XXH3-64 over seq, length, time and flags of every live record, in hexadecimal."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    created_ms: int
    members: tuple[BackupMember, ...]
    topics: tuple[BackupTopic, ...]

    @property
    def file_bytes(self) -> int:
        return sum(member.bytes for member in self.members)


def encode_manifest(manifest: Manifest) -> bytes:
    body = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    return body + _CHECKSUM_LINE + f"{checksum64(body):016x}\n".encode()


def decode_manifest(contents: bytes) -> Manifest:
    body, mark, checksum = contents.rpartition(_CHECKSUM_LINE)
    if not mark or checksum != f"{checksum64(body):016x}\n".encode():
        raise FormatError("the manifest's checksum does not match")
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except msgspec.MsgspecError as error:
        raise FormatError(f"the manifest is not one of this software: {error}") from error
    for member in manifest.members:
        if not is_member_name(member.name):
            raise FormatError(f"{member.name!r} is no file of a data directory")
    return manifest


def check_heading(contents: bytes) -> None:
    """FormatError when this is no backup, UnknownFrameError when a newer version made it."""
    words = contents[: len(HEADING) + 8].split(b"\n", 1)[0].rsplit(b" ", 1)
    if len(words) != 2 or words[0] != b"headwater backup" or not words[1].isdigit():
        raise FormatError("not a backup of Headwater")
    if int(words[1]) > BACKUP_VERSION:
        raise UnknownFrameError(
            f"backup version {int(words[1])} is newer than this software knows ({BACKUP_VERSION})"
        )


def is_member_name(name: str) -> bool:
    """True for names this software gives inside a data directory, and for nothing else (I16)."""
    match name.split("/"):
        case [where, file] if where == WAL_DIRECTORY:
            return _is_log_name(file)
        case [where, shard, file] if where == WAL_DIRECTORY:
            return parse_shard_directory_name(shard) is not None and _is_log_name(file)
        case [where, file] if where == META_DIRECTORY:
            return parse_snapshot_name(file) is not None
        case [where, file] if where == KAFKA_DIRECTORY:
            return file == CHECKPOINT_NAME or parse_kafka_name(file) is not None
        case [where, *below] if where == MACHINES_DIRECTORY:
            return is_machine_file(below)
        case [where, topic, file] if where == TOPICS_DIRECTORY:
            known = parse_topic_directory_name(topic) is not None
            return known and parse_segment_name(file) is not None
    return False


def _is_log_name(name: str) -> bool:
    return name in (CURRENT_NAME, REPAIRS_NAME) or parse_wal_file_name(name) is not None


def encode_header(name: str, size: int, created_ms: int) -> bytes:
    """The block in front of a member."""
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o600
    info.mtime = created_ms // 1_000
    return info.tobuf(tarfile.USTAR_FORMAT)


def decode_header(block: bytes) -> tuple[str, int] | None:
    """Name and length of the member behind this block; None for the end of the file."""
    if not any(block):
        return None
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise FormatError(f"no header of a tar file: {error}") from error
    if info.size < 0:
        raise FormatError(f"a member of {info.size} bytes")
    return info.name, info.size


def padding(size: int) -> int:
    """Zeros behind a member of this length."""
    return -size % BLOCK_BYTES
