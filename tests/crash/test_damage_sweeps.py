"""Damage to files at rest: every byte flipped, every length, blocks moved, files exchanged (I5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

import pytest

from headwater.format.frame import FRAME_BYTES_MIN
from headwater.testing import FakeDisk
from tests.crash.damage import SPECIMENS, Outcome, Specimen, judge, specimen_of
from tests.crash.matrix import FULL, slice_of, tried
from tests.crash.session import Session

pytestmark = pytest.mark.crash

BLOCK_SIZES = (64, 128, 256, 512)


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_flipped_bit_is_refused_or_harmless_in_every_byte(name: str) -> None:
    specimen = SPECIMENS[name]()
    outcomes: set[Outcome] = set()
    for path in specimen.paths:
        content = specimen.disk().files()[path]
        for offset in slice_of(range(len(content)), 3):
            header = content[offset : offset + FRAME_BYTES_MIN].strip(b"\0") != b""
            bits = range(8) if FULL and header else (offset % 8,)
            for bit in bits:
                disk = specimen.disk()
                disk.damage(path, offset, bytes([content[offset] ^ 1 << bit]))
                outcomes.add(judge(specimen, disk, f"bit {bit} of byte {offset} of {path}"))
                tried(f"damage to a log {name}: bit flips")
    assert Outcome.REFUSED in outcomes


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_file_cut_at_any_byte_is_refused_or_harmless(name: str) -> None:
    specimen = SPECIMENS[name]()
    for path in specimen.paths:
        for length in slice_of(range(len(specimen.disk().files()[path])), 3):
            disk = specimen.disk()
            disk.truncate_file(path, length)
            outcome = judge(specimen, disk, f"{path} cut to {length} bytes")
            # A cut is never a torn tail: files have their full length before their first use.
            assert outcome is not Outcome.CUT, f"{path} cut to {length} bytes"
            tried(f"damage to a log {name}: truncations")


def moved_blocks(specimen: Specimen, path: PurePath, size: int) -> Iterator[tuple[str, bytes]]:
    """Every block duplicated over, swapped with and shifted against its fellows, and zeroed."""
    content = specimen.disk().files()[path]
    starts = range(0, len(content), size)
    for start in starts:
        block = content[start : start + size]
        yield f"block at {start} zeroed", _with(content, start, bytes(len(block)))
        shifted = content[:start] + block[-1:] + block[:-1] + content[start + size :]
        yield f"block at {start} turned by a byte", shifted
        for other in starts:
            if other > start and len(content) - other >= size:
                second = content[other : other + size]
                swapped = _with(_with(content, start, second), other, block)
                yield f"blocks at {start} and {other} swapped", swapped
            if other != start and len(content) - other >= len(block):
                yield f"block at {start} also at {other}", _with(content, other, block)
        yield f"from {start} on pushed back by a block", content[:start] + block + content[start:]
        yield f"block at {start} cut out", content[:start] + content[start + size :]


def _with(content: bytes, start: int, block: bytes) -> bytes:
    return content[:start] + block + content[start + len(block) :]


@pytest.mark.parametrize("size", BLOCK_SIZES)
@pytest.mark.parametrize("name", SPECIMENS)
def test_blocks_that_moved_or_vanished_are_noticed(name: str, size: int) -> None:
    specimen = SPECIMENS[name]()
    for path in specimen.paths:
        for what, content in slice_of(moved_blocks(specimen, path, size), 4):
            disk = specimen.disk()
            disk.write_file(path, content)
            judge(specimen, disk, f"{path}, blocks of {size}: {what}")
            tried(f"damage to a log {name}: blocks")


@pytest.mark.parametrize("size", BLOCK_SIZES)
def test_stale_blocks_from_an_older_copy_are_noticed(size: int) -> None:
    """A lost or misdirected write: a block is what it was some groups ago."""
    older = SPECIMENS["left_idle"]()
    disk = older.disk()
    session = Session(disk).open()
    for topic in (1, 2, 1):
        session.append(topic)
    session.close()
    newer = specimen_of("left idle, then stopped", disk)
    for path, stale in older.disk().files().items():
        content = newer.disk().files().get(path)
        if content is None or path.name == "LOCK":
            continue
        for start in range(0, len(content), size):
            damaged = FakeDisk(image=newer.image)
            damaged.write_file(path, _with(content, start, stale[start : start + size]))
            judge(newer, damaged, f"{path}: stale block of {size} at {start}")
            tried("damage: stale blocks")
