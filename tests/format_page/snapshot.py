"""The chapters of docs/format.md about snapshots and backups."""

from __future__ import annotations

from typing import Final

from headwater.format.backup import HEADING, HEADING_NAME, MANIFEST_NAME, BackupMember, BackupTopic
from headwater.format.control_frames import RouterMeta
from headwater.format.layout import Layout
from headwater.format.names import WAL_DIRECTORY
from headwater.format.snapshot import (
    META_DIRECTORY,
    SNAPSHOT_HEADER,
    ShardMeta,
    Snapshot,
    TopicMeta,
    snapshot_name,
)


def _names(kind: type) -> str:
    return ", ".join(f"`{name}`" for name in kind.__struct_fields__)  # type: ignore[attr-defined]


SNAPSHOT_PARTS: Final[tuple[str | Layout, ...]] = (
    f"""
`{META_DIRECTORY}/{snapshot_name(12)}` is everything about topics that is not records. It is written
under a temporary name, synced and renamed; the one before is kept until the next, and log files go
only when both hold what was in them. A start reads the newest that is sound.
""",
    SNAPSHOT_HEADER,
    f"""
The body is msgpack: a map with {_names(Snapshot)}. `epochs` has the last epoch of every name
that was dropped. A shard is a list of {_names(ShardMeta)}; the directory is relative to
`{WAL_DIRECTORY}/`, and every frame up to `covered_frame` is in this snapshot or in segments. A
topic is a list of {_names(TopicMeta)}, a router of {_names(RouterMeta)}. A newer version is
refused.
""",
)

BACKUP_PARTS: Final[tuple[str | Layout, ...]] = (
    f"""
A backup is a plain tar file (ustar), so any tar can list and unpack it. The first member is
`{HEADING_NAME}` with the line `{HEADING.decode().strip()}`. Then come files under the names they
have in a data directory; where a name comes twice, the later one counts. Of a log file only the
whole groups are there: what is missing of its length is zeros. The last member, `{MANIFEST_NAME}`,
is JSON, then a line with the XXH3-64 of the JSON. It has the version, the time of the backup, the
members that count ({_names(BackupMember)}) and the topics ({_names(BackupTopic)}). A backup without
a whole manifest was never finished and is refused.
""",
)
