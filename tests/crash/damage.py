"""Logs to be damaged, and the judgement of a damaged log.

The only outcomes allowed: refused with our own error that says where, disk unchanged; or
accepted with every record there; or, where no witness was left that could tell damage from an
unfinished write, cut at a whole group and said so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import PurePath

import pytest

from headwater.core.errors import DamageError, StorageError
from headwater.disk import replace_file
from headwater.format.log_state import Repairs, Skip, decode_current, encode_repairs
from headwater.format.mark import CommitMark, decode_mark, mark_prefix
from headwater.format.names import CURRENT_NAME, REPAIRS_NAME, parse_wal_file_name
from headwater.recovery.finding import Action
from headwater.recovery.topics.replay import FrameGroup, replay
from headwater.testing import FakeDisk, Item
from headwater.testing.trace import Image
from tests.crash.session import DISK, WAL, Session, log_files, new_disk


class Outcome(Enum):
    REFUSED = "refused"
    HARMLESS = "harmless"
    CUT = "cut and reported, no witness left"
    ERASED = "zeros to the end of the log, no witness left"


@dataclass(frozen=True, slots=True)
class Specimen:
    """A small log as it lies on the disk."""

    name: str
    image: Image
    items: tuple[Item, ...]
    last: PurePath
    """The file that was being written."""
    marks: tuple[CommitMark, ...]
    """Its marks."""
    ends: tuple[tuple[int, int], ...]
    """(offset, items): so many items lie in the log up to this offset of the last file."""

    def disk(self) -> FakeDisk:
        return FakeDisk(image=self.image)

    @property
    def paths(self) -> list[PurePath]:
        return list(log_files(self.disk()))

    def sure(self, damaged: FakeDisk) -> int:
        """How many items some witness still knows to be synced: these must not be lost.

        A witness is a mark that stands unharmed in its place, or CURRENT. Damage that takes all
        of a log's end, witnesses included, looks like a power loss before the sync.
        """
        whole, harmed = self.disk().files()[self.last], damaged.files().get(self.last, b"")
        known = [
            mark.durable_offset
            for mark in self.marks
            if whole[mark.offset : mark.body_at] == harmed[mark.offset : mark.body_at]
        ]
        current = self.disk().files()[WAL / CURRENT_NAME]
        if current == damaged.files().get(WAL / CURRENT_NAME):
            known.append(decode_current(current).durable_offset)
        return max((items for end, items in self.ends if end <= max(known, default=0)), default=0)


def specimen_of(name: str, disk: FakeDisk) -> Specimen:
    found = Session(disk.clone()).abandon()
    last = found.recovered.report.shards[0].files[-1]
    buffer = memoryview(disk.files()[last.path])
    marks: list[CommitMark] = []
    in_last = [group for group in _groups(found, disk) if group.path == last.path]
    inside = sum(len(list(group.frames())) for group in in_last)
    ends = [(0, len(found.items) - inside)]
    at = 0
    while at < last.end:
        mark = decode_mark(buffer, at, len(buffer))
        marks.append(mark)
        ends.append((mark.end, ends[-1][1] + mark.frame_count))
        at = mark.end
    assert ends[-1][1] > ends[0][1], "the last file holds records too"
    image = disk.snapshot()
    return Specimen(name, image, tuple(found.items), last.path, tuple(marks), tuple(ends))


def _groups(found: Session, disk: FakeDisk) -> list[FrameGroup]:
    return list(replay(disk, found.recovered.report.shards))


@cache
def stopped_cleanly() -> Specimen:
    """Three files, all kinds of groups, a clean stop: everything is witnessed."""
    disk = new_disk()
    session = Session(disk).open()
    for topic in (1, 2, 1, 1, 2, 1, 2, 1):
        session.append(topic)
    session.commit(session.ticket(1, 2), session.ticket(2, 1, DISK))
    for topic in (1, 2):
        session.append(topic)
    session.close()
    return specimen_of("stopped cleanly", disk)


@cache
def left_idle() -> Specimen:
    """Killed after an idle second: the idle mark witnesses all records."""
    disk = new_disk()
    session = Session(disk).open()
    for topic in (1, 2, 1, 2, 1, 1, 2):
        session.append(topic)
    session.pass_time(1_000_000)
    return specimen_of("left idle", disk)


@cache
def killed() -> Specimen:
    """Killed right after an ack: nobody has witnessed the last group yet."""
    disk = new_disk()
    session = Session(disk).open()
    for topic in (1, 2, 1, 2, 1, 2, 1, 1):
        session.append(topic)
    return specimen_of("killed", disk)


@cache
def repaired() -> Specimen:
    """Damaged in the middle, the loss agreed to in REPAIRS, written to since, stopped cleanly."""
    disk = stopped_cleanly().disk()
    first = min(path for path in log_files(disk) if parse_wal_file_name(path.name) is not None)
    disk.damage(first, 300, b"\xff" * 20)
    with pytest.raises(DamageError) as caught:
        Session(disk)
    at = caught.value.offset or 0
    resume = disk.files()[first].index(mark_prefix(), at + 1)
    skip = Skip(parse_wal_file_name(first.name) or 0, at, resume, "agreed")
    replace_file(disk, WAL / REPAIRS_NAME, encode_repairs(Repairs((skip,))))
    session = Session(disk).open()
    session.append(1)
    session.close()
    return specimen_of("repaired", disk)


SPECIMENS: dict[str, Callable[[], Specimen]] = {
    each.__name__: each for each in (stopped_cleanly, left_idle, killed, repaired)
}


def check_refusal(error: StorageError, what: str) -> None:
    """It names the file, and in a log file the place."""
    assert error.path is not None, f"{what}: refused without a place: {error}"
    if parse_wal_file_name(PurePath(error.path).name) is not None:
        assert error.offset is not None, f"{what}: refused without an offset: {error}"


def judge(specimen: Specimen, disk: FakeDisk, what: str) -> Outcome:
    """Open the damaged log and hold the result against the rules."""
    before, damaged = log_files(disk), disk.clone()
    try:
        found = Session(disk).abandon()
    except StorageError as error:
        check_refusal(error, what)
        assert log_files(disk) == before, f"{what}: refused, and yet the disk was changed"
        return Outcome.REFUSED
    items = tuple(found.items)
    if items == specimen.items:
        return Outcome.HARMLESS
    assert items == specimen.items[: len(items)], f"{what}: not a prefix: {items}"
    lost = specimen.items[len(items) :]
    assert len(items) >= specimen.sure(damaged), f"{what}: silently lost {lost}"
    if any(finding.action is Action.CUT for finding in found.recovered.report.findings):
        return Outcome.CUT
    end = found.recovered.report.shards[0].files[-1].end
    assert not before[specimen.last][end:].strip(b"\0"), f"{what}: lost {lost} without a word"
    return Outcome.ERASED
