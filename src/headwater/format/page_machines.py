"""The chapter about state machines, for the page about the bytes on disk."""

from __future__ import annotations

from typing import Final

from headwater.format.layout import Layout
from headwater.format.machines import bodies
from headwater.format.machines.current import (
    MachineCurrent,
    encode_fed,
    encode_machine_current,
    encode_webhook_position,
)
from headwater.format.machines.entry import ENTRY, ENTRY_TYPE_MEANING
from headwater.format.machines.history import HISTORY_FOOTER, HISTORY_INDEX_ENTRY
from headwater.format.machines.names import (
    FED_NAME,
    HISTORY_DIRECTORY,
    INDEX_NAME,
    MACHINES_DIRECTORY,
    OFFSET_BITS,
    SNAPSHOTS_DIRECTORY,
    WEBHOOKS_DIRECTORY,
    global_offset,
    history_name,
    segment_name,
    snapshot_file_name,
)
from headwater.format.machines.snapshot import (
    MACHINE_SNAPSHOT_HEADER,
    SNAPSHOT_BLOCK,
    SnapshotHeading,
)
from headwater.format.names import CURRENT_NAME, QUARANTINE_DIRECTORY, WAL_DIRECTORY


def _fields(kind: type) -> str:
    return ", ".join(f"`{name}`" for name in kind.__struct_fields__)  # type: ignore[attr-defined]


def _names() -> str:
    return f"""
```
{MACHINES_DIRECTORY}/
  {WAL_DIRECTORY}/
    {segment_name(1)}        entries, then zeros
    {segment_name(2)}
    {CURRENT_NAME}                     which segment is written to, what of it is known synced
    {QUARANTINE_DIRECTORY}/                 copies of torn tails
  {SNAPSHOTS_DIRECTORY}/
    {INDEX_NAME}                  which snapshots there are, for people too
    {snapshot_file_name(1705312200, 0)}
  {HISTORY_DIRECTORY}/
    {history_name(1)}       what is kept of a segment that was deleted
  {FED_NAME}                           how far transitions are in their topic
  {WEBHOOKS_DIRECTORY}/
    0123456789abcdef01234567.json how far a webhook is; named after its machine and address
```

Segments are numbered from 1, in hex. An entry is named by one number, its global offset:
`segment << {OFFSET_BITS} | offset in the segment`. The first entry is at {global_offset(1, 0)}.
"""


def _types() -> str:
    rows = ["| type | name | meaning | JSON |", "|---|---|---|---|"]
    kinds = {kind: body for body, kind in bodies.TYPE_OF.items()}
    for kind, meaning in ENTRY_TYPE_MEANING.items():
        rows.append(f"| {int(kind)} | {kind.name} | {meaning} | {_fields(kinds[kind])} |")
    return "\n".join(rows)


def _rules() -> str:
    return """
The checksum of the header is left out, with its flag, where the setting
`machine_entry_header_checksum` is false: then an entry ends with its JSON. Entries of both forms
may stand in one file.

Sequence numbers have no gaps, so entries that are missing between two sound ones show. A batch is
entries of which all but the last have flag bit 1: without the last, none of them counts. Fields
that have nothing to say are left out of the JSON.

`synced` is a witness: when the entry was made, everything before that offset was known to be on
stable storage. Bad bytes before a witnessed offset are damage: they are skipped where a sound entry
follows, counted, and reported. Bad bytes behind every witness are a torn tail: copied to quarantine
and overwritten with zeros. `previous` is the offset of the entry before about the same instance. A
reader walks a history back with it, and sees when an entry between is missing; then the instance is
`doubtful` from there on.
"""


def _small_files() -> str:
    current = encode_machine_current(MachineCurrent(3, 81_920, 2)).decode().strip()
    fed = encode_fed(global_offset(3, 81_920)).decode().strip()
    webhook = encode_webhook_position(global_offset(3, 81_920)).decode().strip()
    return f"""
**{CURRENT_NAME}** names the active segment, how much of it was known synced, and the oldest segment
that must still be there:

```
{current}
```

**{FED_NAME}** says up to which offset transitions are in their topic. It is written before
compaction deletes log in front of that offset, and by a clean stop; the newest record in the topic
may say more. The file of a webhook says the same of its deliveries; older ones have no
`crc32c`. Both are read before the log is opened, and the log is kept from there on:

```
{fed}
{webhook}
```
"""


def _snapshots() -> str:
    return f"""
A snapshot is a header and blocks, each compressed for itself and numbered in its checksum. The
heading comes first and has {_fields(SnapshotHeading)}; `{INDEX_NAME}` has the same of the two
newest, the newest last, and is believed as far as the snapshots say the same. Then come
machines (name, version, definition), instances sorted by id, idempotency keys and retired ids. A
file without the end block was never finished. `snap-....snap.instance` is one instance as JSON,
made on request and never loaded.
"""


def _histories() -> str:
    return f"""
Before compaction deletes a segment it writes the entries of living instances into
`{HISTORY_DIRECTORY}/`, in a file with the segment's number: of each instance the newest up to a
count. Entries stand as in the log, without flag bit 1, then an index entry for each, then the
footer. A reader that walks a history back by `previous` looks for an entry of a deleted segment
there. A start does without these files.
"""


MACHINE_PARTS: Final[tuple[str | Layout, ...]] = (
    _names(),
    ENTRY,
    _types(),
    _rules(),
    _small_files(),
    _snapshots(),
    MACHINE_SNAPSHOT_HEADER,
    SNAPSHOT_BLOCK,
    _histories(),
    HISTORY_INDEX_ENTRY,
    HISTORY_FOOTER,
)
