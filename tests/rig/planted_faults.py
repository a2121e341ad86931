"""Faults planted into files, one at a time, for whoever must find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePath

from headwater.store.verify import VerifyFault
from headwater.testing import FakeDisk
from headwater.testing.trace import Image
from tests.crash.matrix import slice_of

Look = Callable[[FakeDisk], list[VerifyFault]]


def planted(content: bytes, every: int) -> Iterator[tuple[str, bytes | None]]:
    """Flipped bits, cuts, an exchange of two stretches, something behind the end, nothing left."""
    for offset in slice_of(range(len(content)), every):
        flipped = bytes([content[offset] ^ 1 << offset % 8])
        yield f"bit flip at {offset}", content[:offset] + flipped + content[offset + 1 :]
    for length in slice_of(range(len(content)), every):
        yield f"cut to {length}", content[:length]
    third = len(content) // 3 + 1
    yield "two stretches exchanged", content[third:] + content[:third]
    yield "bytes behind its end", content + b"\x01" * 40
    yield "zeroed", bytes(len(content))
    yield "missing", None


def faulty(image: Image, path: PurePath, content: bytes | None) -> FakeDisk:
    disk = FakeDisk(image=image)
    if content is None:
        disk.unlink(path)
        disk.settle()
    else:
        disk.write_file(path, content)
    return disk


def unfound(
    image: Image, look: Look, paths: list[PurePath], every: dict[str, int]
) -> Iterator[tuple[str, str, list[VerifyFault]]]:
    """Each fault that changes a file and is in no finding about a file; with the bad findings."""
    files = FakeDisk(image=image).files()
    for path in paths:
        kind = path.suffix.removeprefix(".") or path.name
        for what, content in planted(files[path], every[kind]):
            if content == files[path]:
                continue
            disk = faulty(image, path, content)
            before = disk.files()
            found = look(disk)
            assert disk.files() == before, "a look changed something"
            yield path.name, what, found
