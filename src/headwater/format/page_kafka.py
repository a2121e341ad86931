"""The chapter about Kafka's shared log, for the page about the bytes on disk."""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.format.kafka import events
from headwater.format.kafka.checkpoint import (
    CHECKPOINT_HEADER,
    GroupMeta,
    KafkaCheckpoint,
    KafkaTopicMeta,
    PartitionMeta,
    ProducerMeta,
    SegmentMeta,
)
from headwater.format.kafka.entry import ENTRY, ENTRY_BYTES
from headwater.format.kafka.events import INTERNAL_ORG, INTERNAL_TOPIC, AnyEvent
from headwater.format.kafka.names import (
    CHECKPOINT_NAME,
    COPY_NAME,
    KAFKA_DIRECTORY,
    REWRITE_SUFFIX,
    SPARE_NAME,
    index_name,
    log_name,
)
from headwater.format.layout import Layout
from headwater.format.names import QUARANTINE_DIRECTORY


def _fields(kind: type[msgspec.Struct]) -> str:
    return ", ".join(f"`{name}`" for name in kind.__struct_fields__)


def _names() -> str:
    return f"""
```
{KAFKA_DIRECTORY}/
  {log_name(0)}                         record batches of all topics, each behind its length
  {index_name(0)}                        {ENTRY_BYTES} bytes for every record
  {log_name(1)}
  {index_name(1)}
  {CHECKPOINT_NAME}                    what is known synced, and the state that follows from it
  {COPY_NAME}               the same once more, written after it and before anything goes
  {SPARE_NAME}              room for the next checkpoint on a full disk; means nothing
  {index_name(0)}{REWRITE_SUFFIX}                    made by a rewrite, before the swap
  {log_name(7)}{REWRITE_SUFFIX}                     the log of a rewrite, until that index is there
  {QUARANTINE_DIRECTORY}/                   what a start cut or could not assign; never read
```

A `.log` is at most 2^30 bytes: a u32 length, a record batch of that many bytes, and so on. A
batch is Kafka's own format, version 2; base offset and leader epoch, which its CRC does not cover,
are written by the log. The files of the newest segment end in zeros, which were written ahead; all
others end with their contents.

Every record has an entry, also those of one batch, whose entries are equal. Counted over all
indexes ever written, in the order of their numbers, the place of an entry is the record's **global
id**; the checkpoint knows with which id each index begins.
"""


def _keys() -> str:
    return f"""
The hash is the first 16 bytes of BLAKE3 over the organisation (u64) and the topic's name, keyed
with the organisation and 24 zeros. Organisation, hash and partition tell whose record it is; the
text of such a key is `{{organisation}}-{{hash in decimal}}-{{partition}}`. A record's offset is its
rank among the global ids with its key, plus those that went with deleted segments.

An entry of length 0 is of a batch that was left out of a rewrite. All other entries of a rewritten
index point into a log of another number, whose own index is empty.

Entries of organisation {INTERNAL_ORG}, topic `{INTERNAL_TOPIC}`, are **events**: batches of one
record, whose value is msgpack, the name of the event and its fields.

{_events()}

`synced` is written at the front of a group: the first `entries` entries of its index, and their
batches, were synced before it was written. `segment_begun` is the first batch of every segment but
the very first, with its own global id: a start that counts to another one knows that a segment is
missing. `group_settled` without members says that a group has none any more.
"""


def _events() -> str:
    rows = ["| event | fields |", "|---|---|"]
    kinds: tuple[type[msgspec.Struct], ...] = AnyEvent.__args__
    rows += [f"| `{kind.__struct_config__.tag}` | {_fields(kind)} |" for kind in kinds]
    rows.append(f"| a row of `offsets_committed` | {_fields(events.OffsetRow)} |")
    rows.append(f"| a member of `group_settled` | {_fields(events.GroupMember)} |")
    return "\n".join(rows)


def _checkpoint() -> str:
    rows: list[tuple[str, type[msgspec.Struct]]] = [
        ("checkpoint", KafkaCheckpoint),
        ("segment", SegmentMeta),
        ("topic", KafkaTopicMeta),
        ("partition", PartitionMeta),
        ("producer", ProducerMeta),
        ("group", GroupMeta),
    ]
    lines = ["| array of | fields |", "|---|---|"]
    lines += [f"| {name} | {_fields(kind)} |" for name, kind in rows]
    table = "\n".join(lines)
    return f"""
The checkpoint is replaced as a whole. Entries up to `entries` of a segment have the XXH3-64
`checksum`; all events before `as_of` are in its state. Behind the last segment's `entries` and
`log_bytes` whole batches are taken in, and the first that is not whole is cut with all behind it;
but when a whole `synced` event behind it counts its entries among the synced ones, it is damage,
and the start is refused. `memberships` are events `group_settled`; without any the field is left
out.

{table}

`running_s` is how many seconds the log was open until then, in all its runs together; a producer's
`last_write_s` is what that was when it wrote last. A checkpoint that does not have them says 0.
"""


KAFKA_PARTS: Final[tuple[str | Layout, ...]] = (
    _names(),
    ENTRY,
    _keys(),
    CHECKPOINT_HEADER,
    _checkpoint(),
)
