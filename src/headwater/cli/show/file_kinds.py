"""Which of our files is this? By name where the name says so, otherwise by content."""

from __future__ import annotations

from enum import Enum
from pathlib import PurePath

from headwater.core.errors import ForeignFileError
from headwater.disk.posix import LOCK_NAME
from headwater.format.kafka.checkpoint import CHECKPOINT_MAGIC
from headwater.format.kafka.names import (
    CHECKPOINT_NAME,
    COPY_NAME,
    SPARE_NAME,
    KafkaFile,
    parse_name,
)
from headwater.format.machines.entry import MAGIC_BYTES
from headwater.format.machines.names import (
    parse_history_name,
    parse_segment_name,
    parse_snapshot_file_name,
)
from headwater.format.mark import mark_prefix
from headwater.format.names import CURRENT_NAME, PREPARED_NAME, REPAIRS_NAME, parse_wal_file_name
from headwater.format.segment import SegmentFile, parse_segment_file
from headwater.format.snapshot import SNAPSHOT_MAGIC, parse_snapshot_name
from headwater.recovery.topics.scan import is_zero


class FileKind(Enum):
    WAL = "WAL file"
    CURRENT = "CURRENT"
    REPAIRS = "REPAIRS"
    PREPARED = "next WAL file, made ahead"
    LOCK = "lock file"
    DATA = "segment data"
    INDEX = "segment index"
    SNAPSHOT = "snapshot"
    KAFKA_LOG = "Kafka log"
    KAFKA_INDEX = "Kafka index"
    KAFKA_CHECKPOINT = "Kafka checkpoint"
    KAFKA_SPARE = "room for a Kafka checkpoint"
    MACHINE_LOG = "machine log"
    MACHINE_SNAPSHOT = "machine snapshot"
    MACHINE_HISTORY = "machine history"
    MACHINE_CURRENT = "CURRENT of machines"


_BY_NAME = {
    CURRENT_NAME: FileKind.CURRENT,
    REPAIRS_NAME: FileKind.REPAIRS,
    LOCK_NAME: FileKind.LOCK,
}
_BY_SEGMENT_FILE = {
    SegmentFile.DATA: FileKind.DATA,
    SegmentFile.NEW_DATA: FileKind.DATA,
    SegmentFile.TEMPORARY_DATA: FileKind.DATA,
    SegmentFile.IDX: FileKind.INDEX,
    SegmentFile.COLD: FileKind.INDEX,
    SegmentFile.DROPPED: FileKind.INDEX,
    SegmentFile.NEW_IDX: FileKind.INDEX,
    SegmentFile.TEMPORARY_IDX: FileKind.INDEX,
    SegmentFile.TEMPORARY_COLD: FileKind.INDEX,
}
_MAGIC = SNAPSHOT_MAGIC.to_bytes(8, "little")
_KAFKA_MAGIC = CHECKPOINT_MAGIC.to_bytes(8, "little")
_CURRENT_OF_MACHINES = b" crc32c="
_CHECKSUM_LINE_BYTES = len("xxh3=0123456789abcdef\n")


def kind_of(path: PurePath, contents: memoryview) -> FileKind:
    part = _kind_in_parts(path.name, contents)
    if part is not None:
        return part
    known = _BY_NAME.get(path.name)
    if known is not None:
        return known
    if path.name == PREPARED_NAME and is_zero(contents):
        return FileKind.PREPARED
    segment_file = parse_segment_file(path.name)
    if segment_file is not None:
        return _BY_SEGMENT_FILE[segment_file[1]]
    if parse_snapshot_name(path.name) is not None or bytes(contents[: len(_MAGIC)]) == _MAGIC:
        return FileKind.SNAPSHOT
    prefix = mark_prefix()
    if parse_wal_file_name(path.name) is not None or contents[: len(prefix)] == prefix:
        return FileKind.WAL
    if bytes(contents[-_CHECKSUM_LINE_BYTES:]).startswith(b"xxh3="):
        return FileKind.REPAIRS if bytes(contents[:1]) == b"{" else FileKind.CURRENT
    stem, copied, _ = path.name.partition(".log.")
    if copied and parse_wal_file_name(f"{stem}.log") is not None:
        return FileKind.WAL  # a copy in quarantine whose beginning is damaged
    raise ForeignFileError(
        "found nothing that Headwater writes",
        path=path,
        advice="name a file of a data directory",
    )


def _kind_in_parts(name: str, contents: memoryview) -> FileKind | None:
    """Of Kafka's log or of state machines? Their names are none that topics have."""
    begin = bytes(contents[:8])
    kafka = parse_name(name)
    if kafka is not None:
        return FileKind.KAFKA_LOG if kafka[1] is KafkaFile.LOG else FileKind.KAFKA_INDEX
    if name == SPARE_NAME:
        return FileKind.KAFKA_SPARE
    if name in (CHECKPOINT_NAME, COPY_NAME) or begin == _KAFKA_MAGIC:
        return FileKind.KAFKA_CHECKPOINT
    if parse_history_name(name) is not None:
        return FileKind.MACHINE_HISTORY
    if parse_segment_name(name) is not None or begin.startswith(MAGIC_BYTES):
        return FileKind.MACHINE_LOG
    if parse_snapshot_file_name(name) is not None:
        return FileKind.MACHINE_SNAPSHOT
    if name == CURRENT_NAME and _CURRENT_OF_MACHINES in bytes(contents):
        return FileKind.MACHINE_CURRENT
    return None
