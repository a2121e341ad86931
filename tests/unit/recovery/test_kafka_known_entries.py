"""The index of a Kafka segment, compared with what the checkpoint knows of it."""

from __future__ import annotations

import msgspec
import pytest

from headwater.format.checksum import checksum64
from headwater.format.kafka.checkpoint import RewriteMeta, SegmentMeta
from headwater.format.kafka.entry import ENTRY_BYTES
from headwater.recovery.kafka.survey import check_known_entries
from headwater.recovery.kafka.table import IndexVerdict

OLD, NEW = b"o" * 2 * ENTRY_BYTES, b"n" * 2 * ENTRY_BYTES
META = SegmentMeta(4, 100, 2, 900, checksum64(OLD), 4)
REWRITING = msgspec.structs.replace(META, rewrite=RewriteMeta(checksum64(NEW), 7, 300))


@pytest.mark.parametrize("meta", [META, REWRITING])
@pytest.mark.parametrize("behind", [b"", b"more"])
def test_entries_that_have_their_checksum_are_sound_whatever_follows(
    meta: SegmentMeta, behind: bytes
) -> None:
    known = check_known_entries(meta, memoryview(OLD + behind))
    assert known == (meta, checksum64(OLD), IndexVerdict.SOUND, 0, "")


def test_an_index_that_a_rewrite_swapped_leads_to_the_new_log() -> None:
    known = check_known_entries(REWRITING, memoryview(NEW))
    assert known.verdict is IndexVerdict.SOUND
    meta = known.meta
    assert (meta.log_number, meta.log_bytes, meta.checksum) == (7, 300, checksum64(NEW))
    assert (meta.number, meta.rewrite) == (4, None)


@pytest.mark.parametrize("meta", [META, REWRITING])
def test_entries_that_are_changed_or_missing_are_told_apart(meta: SegmentMeta) -> None:
    changed = check_known_entries(meta, memoryview(b"x" + OLD[1:]))
    assert changed[2:] == (IndexVerdict.CHANGED, 0, "the entries are not those that were synced")
    short = check_known_entries(meta, memoryview(OLD[:-1]))
    size = 2 * ENTRY_BYTES
    assert short[2:] == (IndexVerdict.SHORT, size - 1, f"the index ends before byte {size}")
    assert changed.meta == short.meta == meta
