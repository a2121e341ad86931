"""A data directory with every kind of file that topics have, as a stop or a kill leaves it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePath

from headwater.config.store import SegmentSettings
from headwater.disk import replace_file
from headwater.engine.database import Database
from headwater.engine.maintenance.reports import keep_report, make_reports_directory
from headwater.format.log_state import Repairs, Skip, decode_current, encode_repairs
from headwater.format.mark import CommitMark, decode_mark, mark_prefix
from headwater.format.names import (
    CURRENT_NAME,
    REPAIRS_NAME,
    WAL_DIRECTORY,
    parse_wal_file_name,
    wal_file_name,
)
from headwater.testing import FakeDisk, ManualClock
from headwater.testing.trace import Image
from tests.rig.life import DATA, SMALL, new_disk, open_stepped
from tests.rig.stepped import SteppedWal
from tests.rig.topic_answers import KEY, REPEATED, Answers, ask_everything

WAL = DATA / WAL_DIRECTORY
LITTLE = replace(
    SMALL,
    wal=replace(SMALL.wal, file_bytes=2048, zero_chunk_bytes=2048),
    segments=SegmentSettings(segment_max_events=4, segment_max_bytes=2000, hot_retain_segments=1),
)
AFTER_MS = 120_000
"""So much later it is opened again: what was too old has gone before."""


def opened(disk: FakeDisk, after_ms: int = AFTER_MS) -> Database:
    return open_stepped(disk, LITTLE, ManualClock(ManualClock().wall_ms() + after_ms))


@dataclass(frozen=True)
class Specimen:
    """A directory at rest, what is answered from it, and what else a kill may have left of it."""

    image: Image
    answers: Answers
    findings: frozenset[str] = frozenset()
    """What a start says of the log when nothing is damaged."""
    shorter: tuple[tuple[int, Answers], ...] = ()
    """What is answered when the log's last file ends here, at the end of a whole group."""

    def disk(self) -> FakeDisk:
        return FakeDisk(image=self.image)

    @property
    def last(self) -> PurePath:
        """The log file that was being written."""
        files = self.disk().files()
        current = decode_current(files[WAL / CURRENT_NAME])
        names = [path for path in files if parse_wal_file_name(path.name) is not None]
        return max(names) if current.active == 0 else WAL / wal_file_name(current.active)

    def witnessed(self, damaged: FakeDisk) -> int:
        """Up to where some witness that stands unharmed knows the last file to be synced."""
        files = damaged.files()
        whole, harmed = self.disk().files()[self.last], files.get(self.last, b"")
        known = [
            mark.durable_offset
            for mark in marks_of(whole)
            if whole[mark.offset : mark.body_at] == harmed[mark.offset : mark.body_at]
        ]
        current = self.disk().files()[WAL / CURRENT_NAME]
        if current == files.get(WAL / CURRENT_NAME):
            known.append(decode_current(current).durable_offset)
        return max(known, default=0)


def marks_of(content: bytes) -> list[CommitMark]:
    marks: list[CommitMark] = []
    at = 0
    while content[at : at + 1].strip(b"\0"):
        marks.append(decode_mark(memoryview(content), at, len(content)))
        at = marks[-1].end
    return marks


def keep_house(db: Database) -> None:
    db.checkpoint()
    db.engine._housekeeping.round()
    db.checkpoint()


def write(db: Database, name: str, count: int) -> None:
    """One by one, so that a number and a tag tell whose a record is."""
    for _ in range(count):
        seq = db.state(name).head_seq + 1
        record = {"data": f"{name} {seq}", "tag": f"t{seq % 3}", "node": f"n{seq % 2}"}
        db.append(name, {**record, "meta": {"of": name}} if seq % 4 == 0 else record)


def live(db: Database, clock: ManualClock) -> None:
    """Deletes, evictions, cold segments, keys, copies: before, between and behind snapshots."""
    db.create("one", durability="fsync")
    db.create("capped", cap_records=6)
    db.create("aged", ttl_ms=60_000)
    db.create("jobs", type="queue", leases_durable=True, max_deliveries=5)
    db.create("copies")
    db.create("picked")
    db.put_router("copy", source="one", dest="copies", guarantee="exactly_once")
    db.put_router("pick", source="one", dest="picked", filter="t1", guarantee="exactly_once")
    write(db, "aged", 3)
    clock.advance(70_000_000)
    write(db, "one", 13)
    write(db, "capped", 9)
    write(db, "jobs", 7)
    write(db, "aged", 2)
    db.append("one", REPEATED, idempotency_key=KEY)
    claimed = db.claim("jobs", "worker", 3)
    db.ack("jobs", "worker", claimed.seqs[:1])
    db.nack("jobs", "worker", claimed.seqs[1:2])
    db.engine.copy_rounds.run_dry()
    keep_house(db)
    db.delete("one", match="t2")
    write(db, "one", 2)
    keep_house(db)
    for _ in range(2):
        write(db, "capped", 4)
        keep_house(db)
    db.delete("one", before_seq=2)
    write(db, "one", 2)
    write(db, "jobs", 1)
    db.append("jobs", REPEATED, idempotency_key=KEY)
    write(db, "capped", 2)
    db.delete("one", match="t0")
    db.ack("jobs", "worker", db.claim("jobs", "worker", 1).seqs)
    write(db, "one", 1)
    db.engine.copy_rounds.run_dry()


def lived(*, cleanly: bool) -> FakeDisk:
    disk, clock = new_disk(), ManualClock()
    db = open_stepped(disk, LITTLE, clock)
    make_reports_directory(disk, DATA)
    live(db, clock)
    keep_report(disk, DATA, "verify", clock.wall_ms(), {"ok": True, "findings": []})
    if cleanly:
        db.close()
    after = FakeDisk(image=disk.snapshot())
    after.settle()
    return after


def specimen_of(disk: FakeDisk) -> Specimen:
    db = opened(FakeDisk(image=disk.snapshot()))
    found = ask_everything(db)
    assert not db.engine.core.damage.findings
    db.engine._lock.release()
    said = frozenset(finding.line() for finding in db.engine.wal_report.findings)
    return Specimen(disk.snapshot(), found, said)


@cache
def stopped() -> Specimen:
    return specimen_of(lived(cleanly=True))


@cache
def killed() -> Specimen:
    """With all that may be left of the last log file, each end with what is answered then."""
    disk = lived(cleanly=False)
    whole = specimen_of(disk)
    content = disk.files()[whole.last]
    shorter = []
    current = decode_current(disk.files()[WAL / CURRENT_NAME])
    for mark in marks_of(content):
        if mark.offset >= current.durable_offset:
            less = whole.disk()
            zeros = bytes(len(content) - mark.offset)
            less.write_file(whole.last, content[: mark.offset] + zeros)
            shorter.append((mark.offset, specimen_of(less).answers))
    return replace(whole, shorter=tuple(shorter))


@cache
def repaired() -> Specimen:
    """Damaged in the middle of the log, the loss agreed to, used again and left idle."""
    disk = lived(cleanly=False)
    last = Specimen(disk.snapshot(), Answers()).last
    content = disk.files()[last]
    at = marks_of(content)[-3].offset
    disk.damage(last, at + 100, bytes([content[at + 100] ^ 1]))
    resume = content.index(mark_prefix(), at + 1)
    skip = Skip(parse_wal_file_name(last.name) or 0, at, resume, "agreed")
    replace_file(disk, WAL / REPAIRS_NAME, encode_repairs(Repairs((skip,))))
    db = opened(disk)
    write(db, "one", 1)
    clock, wal = db.engine.core.clock, db.engine.core.wal
    assert isinstance(clock, ManualClock)
    assert isinstance(wal, SteppedWal)
    clock.advance(2_000_000)
    wal.tick()
    db.engine._lock.release()
    return specimen_of(disk)


LIVES = {"stopped": stopped, "killed": killed, "repaired": repaired}
