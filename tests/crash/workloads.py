"""What the sweeps crash in the middle of: short scripts that touch every path of the writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from headwater.config.wal import WalSettings
from headwater.disk import Disk
from headwater.testing import FakeDisk, Oracle
from headwater.testing.oracle import Crash
from tests.crash.session import DISK, FSYNC, MEMORY, SMALL, Session, make_now, new_disk, small

Script = Callable[["Run"], None]


@dataclass(slots=True)
class Run:
    """A script's run on a disk, with all that is needed to judge crashes in it afterwards."""

    disk: Disk
    fake: FakeDisk
    settings: WalSettings = SMALL
    oracle: Oracle = field(default_factory=Oracle)
    trimmed: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    """(point, floors): from this point on records below the floors may be gone."""
    files_trimmed: int = 0
    sessions: list[Session] = field(default_factory=list)

    def session(self, *, ahead: bool = True) -> Session:
        session = Session(
            self.disk,
            self.settings,
            oracle=self.oracle,
            fake=self.fake,
            prepare=make_now if ahead else None,
        )
        self.sessions.append(session)
        return session

    def floors_at(self, point: int | None) -> Mapping[str, int]:
        floors: dict[str, int] = {}
        for since, floor in self.trimmed:
            if point is None or point >= since:
                floors = floor
        return floors

    def check(self, found: Session, *, crash: Crash, at: int | None, label: str) -> None:
        self.oracle.check(found.items, crash=crash, at=at, floors=self.floors_at(at), label=label)


def append(run: Run) -> None:
    """A new log; groups of one and many, all classes, an idle mark, a clean stop."""
    session = run.session(ahead=False).open()
    session.append()
    session.commit(session.ticket(1, 2), session.ticket(2), session.ticket(3, 1, DISK))
    session.append(2, 1, DISK)
    session.append(3, 1, MEMORY)
    session.pass_time(1_000_000)
    session.close()


def rotation(run: Run) -> None:
    """Three files, the next one made ahead, and a stop without a word."""
    session = run.session().open()
    for round_number in range(7):
        session.commit(session.ticket(1), session.ticket(2, 1, DISK if round_number % 2 else FSYNC))
    session.abandon()


def reopening(run: Run) -> None:
    """A log that was left by a kill is opened, written to, stopped, and opened again."""
    first = run.session().open()
    first.append(1, 3)
    first.append(2, 1, DISK)
    first.abandon()
    second = run.session().open()
    second.append(1)
    second.append(2)
    second.close()
    third = run.session().open()
    third.append(1, 2)
    third.abandon()


def trimming(run: Run) -> None:
    """Old files are released and deleted while writing goes on."""
    session = run.session().open()
    for _ in range(13):
        session.append(1)
    keep_from = session.logs[0].active_number
    kept = [ticket for ticket in session.tickets if ticket.last_frame >= keep_from]
    first_kept = kept[0].context[2][0].seq if kept else session.heads[1] + 1
    run.trimmed.append((run.fake.point, {"1": first_kept}))
    run.files_trimmed += session.trim(keep_from)
    session.append(1)
    session.append(1)
    session.close()


def lazily(run: Run) -> None:
    """Many groups before a sync: this is where a disk may keep the later and lose the earlier."""
    session = run.session().open()
    for topic in (1, 2, 1, 1, 2):
        session.append(topic, 1, DISK)
    session.append(3, 1, MEMORY)
    session.append(1)
    for topic in (2, 1, 2):
        session.append(topic, 1, DISK)
    session.pass_time(100_000)
    session.append(2, 1, DISK)
    session.abandon()


def patient(run: Run) -> None:
    """A second passes between the groups, so that a disk with room again is noticed."""
    session = run.session().open()
    for topic in (1, 2, 1, 2, 1, 2, 1):
        session.append(topic)
        session.pass_time(1_000_000)
    session.close()


def with_essentials(run: Run) -> None:
    """Every group has a ticket that may use the reserve when there is no room."""
    run.settings = small(file_bytes=4096, reserve_bytes=256)
    session = run.session(ahead=False).open()
    for _ in range(9):
        session.commit(session.ticket(1, size=400), session.ticket(2, essential=True))
    session.abandon()


def oversized(run: Run) -> None:
    """A group larger than a file gets a file of its own."""
    session = run.session(ahead=False).open()
    session.append(1)
    session.commit(session.ticket(1, 1, size=1500))
    session.append(1)
    session.append(2)
    session.abandon()


def resharding(run: Run) -> None:
    """One shard, then three, then one: the same topics go on in other directories."""
    for shards in (1, 3, 1):
        run.settings = small(shards=shards)
        session = run.session().open()
        session.commit(*[session.ticket(topic) for topic in (1, 2, 3, 4)])
        session.append(4, 1, DISK)
        session.close()


SCRIPTS: Final[dict[str, Script]] = {
    each.__name__: each
    for each in (append, lazily, rotation, reopening, trimming, oversized, resharding)
}


@cache
def recorded(name: str) -> Run:
    """The script's run on a fake disk with nothing going wrong. Only its trace is used again."""
    disk = new_disk()
    run = Run(disk, disk)
    SCRIPTS[name](run)
    for session in run.sessions:
        session.check_each_answered_once()
    return run
