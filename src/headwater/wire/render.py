"""Records as JSON, joined from stored bytes: payloads are never parsed and printed again.

A projection says which fields a reader wants. What a record does not have is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from headwater.core.records import Record

_text = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Projection:
    tags: bool = False
    meta: bool = True
    data: bool = True


DEFAULT_PROJECTION: Final = Projection()


def render_record(record: Record, projection: Projection = DEFAULT_PROJECTION) -> bytes:
    """One record as a JSON object."""
    parts = [b'{"$seq":%d,"$ts":%d' % (record.seq, record.ts)]
    if record.node is not None:
        parts += (b',"$node":', _text(record.node))
    if projection.tags and record.tag is not None:
        parts += (b',"$tag":', _text(record.tag))
    if projection.data:
        parts += (b',"data":', record.data_json)
    if projection.meta and record.meta_json is not None:
        parts += (b',"meta":', record.meta_json)
    parts.append(b"}")
    return b"".join(parts)
