"""Which of our files is this? By name where the name says so, otherwise by content."""

from __future__ import annotations

from enum import Enum
from pathlib import PurePath

from headwater.core.errors import ForeignFileError
from headwater.disk.posix import LOCK_NAME
from headwater.format.mark import mark_prefix
from headwater.format.names import CURRENT_NAME, PREPARED_NAME, REPAIRS_NAME, parse_wal_file_name
from headwater.recovery.scan import is_zero


class FileKind(Enum):
    WAL = "WAL file"
    CURRENT = "CURRENT"
    REPAIRS = "REPAIRS"
    PREPARED = "next WAL file, made ahead"
    LOCK = "lock file"


_BY_NAME = {
    CURRENT_NAME: FileKind.CURRENT,
    REPAIRS_NAME: FileKind.REPAIRS,
    LOCK_NAME: FileKind.LOCK,
}
_CHECKSUM_LINE_BYTES = len("xxh3=0123456789abcdef\n")


def kind_of(path: PurePath, contents: memoryview) -> FileKind:
    known = _BY_NAME.get(path.name)
    if known is not None:
        return known
    if path.name == PREPARED_NAME and is_zero(contents):
        return FileKind.PREPARED
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
        advice="name a WAL file, CURRENT or REPAIRS of a data directory",
    )
