"""Segment files in each other's places: another topic's, another range's, an older copy, or none.

The topics are as alike as can be: the same times and sizes, other payloads and other deletes. So a
frame and an entry are sound wherever they lie, and only who they belong to is wrong. Allowed is:
refused with the file named, told as damage, or the same answer. Never silence, never another's
record, never a deleted one (I6, I8).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import PurePath

import pytest

from headwater.core.errors import HeadwaterError, StorageError
from headwater.engine.database import Database
from headwater.engine.read_only.directory_check import verify_directory
from headwater.testing import FakeDisk, ManualClock
from headwater.testing.trace import Image
from tests.crash.matrix import slice_of, tried
from tests.rig.life import COLD, DATA, SMALL, new_disk, open_stepped

pytestmark = pytest.mark.crash

TOPICS = ("one", "two")
ROOTS = (DATA / "topics", COLD / "topics")
Event = tuple[object, ...]
Files = dict[PurePath, bytes]


def fill(db: Database, count: int) -> None:
    for number in range(count):
        for name in TOPICS:
            tag = f"t{number % 4}" if name == "one" else f"t{(number + 1) % 4}"
            db.append(name, {"data": f"{name} {number:03}", "tag": tag})


def keep_house(db: Database, *, moving: bool) -> None:
    db.checkpoint()
    if moving:
        db.engine._housekeeping.round()
    db.checkpoint()


def segment_files(disk: FakeDisk) -> Files:
    return {
        path: content
        for path, content in disk.files().items()
        if any(root in path.parents for root in ROOTS)
    }


@cache
def lived() -> tuple[Image, dict[str, list[Event]], tuple[Files, ...]]:
    """Cold, sealed and active segments, with deletes in each; what a reader gets; older copies."""
    disk = new_disk()
    db = open_stepped(disk, SMALL, ManualClock())
    copies: list[Files] = []
    fill(db, 17)
    keep_house(db, moving=True)
    copies.append(segment_files(disk))
    db.delete("one", match="t1")
    db.delete("two", match="t2")
    keep_house(db, moving=False)
    copies.append(segment_files(disk))
    db.delete("one", match="t3")
    keep_house(db, moving=True)
    copies.append(segment_files(disk))
    db.close()
    disk.settle()
    image = disk.snapshot()
    db = open_stepped(FakeDisk(image=image), SMALL, ManualClock())
    return image, {name: read(db, name) for name in TOPICS}, tuple(copies)


def read(db: Database, name: str) -> list[Event]:
    events: list[Event] = []
    cursor = 0
    for _ in range(200):
        diff = db.diff(name, cursor, limit=7)
        if diff.tombstone is not None:
            gone = diff.tombstone
            events.append(("tombstone", gone.gap_from, gone.gap_to, gone.reason))
        events += [(record.seq, record.data, record.tag) for record in diff.records]
        cursor = diff.next_from_seq
        if diff.caught_up:
            return events
    raise AssertionError("a reader that never catches up")


def judge(changed: Files, what: str) -> str:
    image, expected, _ = lived()
    disk = FakeDisk(image=image)
    for path, content in changed.items():
        if content:
            disk.write_file(path, content)
        elif disk.exists(path):
            disk.unlink(path)
    disk.settle()
    report = verify_directory(disk, DATA, ManualClock(), lambda _: lambda _: None)
    assert not report.unchecked, what
    db = open_stepped(disk, SMALL, ManualClock())
    outcome = "same answer"
    for name in TOPICS:
        try:
            found = read(db, name)
        except StorageError as error:
            if error.path is None:
                raise
            outcome = "refused"
            continue
        served = [event for event in found if event[0] != "tombstone"]
        wrong = [event for event in served if event not in expected[name]]
        assert not wrong, f"{what}: {name} served {wrong}"
        if found == expected[name]:
            continue
        assert db.engine.core.damage.findings, f"{what}: {name} changed without a word"
        reasons = {event[3] for event in found if event[0] == "tombstone"}
        assert reasons == {"damaged"}, f"{what}: {name} told {reasons}"
        outcome = "told" if outcome == "same answer" else outcome
    for name in TOPICS:
        try:
            db.append(name, {"data": "after"})
        except HeadwaterError:
            assert outcome != "same answer", f"{what}: {name} cannot be written"
    db.engine._lock.release()
    # A delete is in the index for good: that the data of a copy does not know of it is no matter.
    alike = outcome == "same answer" and "copy" in what
    assert report.bad or alike, f"{what}: verify found nothing"
    return outcome


def kin(files: Files) -> dict[PurePath, list[PurePath]]:
    """The files of each segment: at home, and in the cold tier."""
    found: dict[PurePath, list[PurePath]] = {}
    for path in files:
        found.setdefault(path.with_suffix(""), []).append(path)
    return found


def one_for_another() -> Iterator[tuple[str, Files]]:
    """Each file under the name of each other file of its kind."""
    files = segment_files(FakeDisk(image=lived()[0]))
    for path in sorted(files):
        for other in sorted(files):
            if other != path and other.suffix == path.suffix:
                yield f"{path} is {other}", {path: files[other]}


def pairs_for_pairs() -> Iterator[tuple[str, Files]]:
    """All files of a segment in one tier under the names of another's, and both exchanged."""
    files = segment_files(FakeDisk(image=lived()[0]))
    segments = kin(files)
    for stem, paths in sorted(segments.items()):
        for other in sorted(segments):
            theirs = {path.suffix: files[path] for path in segments[other]}
            if other == stem or set(theirs) != {path.suffix for path in paths}:
                continue
            moved = {path: theirs[path.suffix] for path in paths}
            yield f"{stem} is {other}", moved
            back = {other.with_suffix(path.suffix): files[path] for path in paths}
            yield f"{stem} and {other} exchanged", moved | back


def older_copies() -> Iterator[tuple[str, Files]]:
    """Each file, and all files of a segment, as they were before a delete or a rewrite."""
    image, _, copies = lived()
    now = segment_files(FakeDisk(image=image))
    for age, copy in enumerate(copies):
        for stem, paths in sorted(kin(copy).items()):
            if all(now.get(path) == copy[path] for path in paths):
                continue
            for path in paths:
                if path in now:
                    yield f"{path} as in copy {age}", {path: copy[path]}
            if all(path in now for path in paths):
                yield f"{stem} as in copy {age}", {path: copy[path] for path in paths}


def nothing_there() -> Iterator[tuple[str, Files]]:
    files = segment_files(FakeDisk(image=lived()[0]))
    for path in sorted(files):
        yield f"{path} is gone", {path: b""}
    for stem, paths in sorted(kin(files).items()):
        yield f"all of {stem} is gone", dict.fromkeys(paths, b"")


KINDS = {
    "another's file": one_for_another,
    "another's segment": pairs_for_pairs,
    "an older copy": older_copies,
    "no file": nothing_there,
}


def test_the_topics_of_the_sweep_have_segments_of_each_kind() -> None:
    files = segment_files(FakeDisk(image=lived()[0]))
    kinds = [(path.suffix, COLD in path.parents) for path in files]
    for kind in ((".data", False), (".idx", False), (".cold", False), (".data", True)):
        assert kinds.count(kind) >= 4, kinds
    assert len(list(older_copies())) >= 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_segment_file_in_anothers_place_is_never_silent(kind: str) -> None:
    for what, changed in slice_of(KINDS[kind](), 1):
        outcome = judge(changed, what)
        tried(f"segments, {kind}: {outcome}")
