"""The index of one segment of Kafka's log, compared with what the checkpoint knows of it.

The entries that the checkpoint knows have its checksum. While a rewrite is under way it knows two:
then the checksum tells whether the index was swapped, and which log the entries lead to.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.format.checksum import checksum64
from headwater.format.kafka.checkpoint import SegmentMeta, rewritten
from headwater.format.kafka.entry import ENTRY_BYTES
from headwater.recovery.kafka.verdict import IndexVerdict

_CHANGED: Final = IndexVerdict.CHANGED.value


class KnownEntries(NamedTuple):
    """What became of the entries that the checkpoint knows."""

    meta: SegmentMeta
    """As it is now: behind the swap of a rewrite, if that was done."""
    checksum: int
    verdict: IndexVerdict
    offset: int = 0
    what: str = ""


def check_known_entries(meta: SegmentMeta, view: memoryview) -> KnownEntries:
    """`view` is the index, as long as it is."""
    size, rewrite = meta.entries * ENTRY_BYTES, meta.rewrite
    checksum = checksum64(view[:size])
    if len(view) < size:
        what = f"the index ends before byte {size}"
        return KnownEntries(meta, checksum, IndexVerdict.SHORT, len(view), what)
    if rewrite is not None and checksum == rewrite.checksum:
        return KnownEntries(rewritten(meta), checksum, IndexVerdict.SOUND)
    if checksum != meta.checksum:
        return KnownEntries(meta, checksum, IndexVerdict.CHANGED, 0, _CHANGED)
    return KnownEntries(meta, checksum, IndexVerdict.SOUND)
