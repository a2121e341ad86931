"""One process's life on a log, driven call by call: no threads, no time, the same every run.

A `Session` does what `open_wal` does, with the group committer in the test's own hands, and tells
an `Oracle` what was submitted and what was acked, at which point of the disk's trace.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath, PurePosixPath
from typing import Any

from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.core.errors import DiskFullError
from headwater.disk import Disk
from headwater.format.frame import Frame, FrameFlag, FrameType, encode_frame
from headwater.recovery.directory import access_error
from headwater.recovery.topics.repair import claim_directory, recover
from headwater.recovery.topics.replay import replay
from headwater.testing import FakeDisk, Item, ManualClock, Oracle
from headwater.wal.committer import GroupCommitter
from headwater.wal.counters import WalCounters
from headwater.wal.file_room import PreparedFile
from headwater.wal.frame_log import FrameLog
from headwater.wal.policy import ByClass
from headwater.wal.sharded import shard_of
from headwater.wal.ticket import Ticket

_identities = itertools.count()

DATA = PurePosixPath("/data")
WAL = DATA / "wal"
FSYNC, DISK, MEMORY = Durability.FSYNC, Durability.DISK, Durability.MEMORY

SMALL = WalSettings(
    shards=1,
    file_bytes=1024,
    reserve_bytes=64,
    zero_chunk_bytes=512,
    switch_interval_us=None,
)
"""Four or five groups fill a file, so that everything happens within a few dozen disk calls."""


def small(**changes: Any) -> WalSettings:
    return replace(SMALL, **changes)


def make_now(prepared: PreparedFile) -> None:
    """Stands in for the preparer's thread, which leaves a full disk to the log too."""
    with contextlib.suppress(OSError):
        prepared.prepare()


def item_of(frame: Frame) -> Item:
    """All that I1 promises to keep: topic, seq, ts, data, tag, node."""
    fields = (str(frame.ts).encode(), frame.tag, frame.node, frame.data)
    return Item(str(frame.topic_id), frame.seq, b"|".join(fields))


class Session:
    """Lock, recover and replay on construction; `open`, then commit, then `close` or `abandon`."""

    def __init__(
        self,
        disk: Disk,
        settings: WalSettings = SMALL,
        *,
        oracle: Oracle | None = None,
        fake: FakeDisk | None = None,
        clock: ManualClock | None = None,
        prepare: Callable[[PreparedFile], None] | None = make_now,
        log_id: int = 7_000,
        directory: PurePath = DATA,
    ) -> None:
        self.disk = disk
        self.settings = settings
        self.clock = clock or ManualClock()
        self.oracle = oracle or Oracle()
        self._fake = fake
        self.answers: Counter[int] = Counter()
        self.tickets: list[Ticket] = []
        self.lock = claim_directory(disk, directory)
        try:
            ids = iter(range(log_id, log_id + 1_000))
            self.recovered = recover(disk, directory / "wal", settings, lambda: next(ids))
            shards = self.recovered.report.shards
            self.frames = [f for group in replay(disk, shards) for f in group.frames()]
            self.items = [item_of(f) for f in self.frames if f.type is FrameType.APPEND]
            self.heads = {int(item.stream): item.seq for item in self.items}
            self.counters = [WalCounters() for _ in self.recovered.positions]
            self.logs = [
                FrameLog(disk, where, settings, self.clock, position, counters, prepare)
                for where, position, counters in zip(
                    self.recovered.directories, self.recovered.positions, self.counters, strict=True
                )
            ]
        except OSError as error:
            self.lock.release()
            raise access_error(directory, error) from error
        except BaseException:
            self.lock.release()
            raise
        self.committers = [
            GroupCommitter(
                log,
                ByClass(settings.disk_sync_interval_us),
                self.clock,
                self._on_answers,
                counters,
                idle_mark_after_us=settings.idle_mark_after_us,
                full_retry_interval_us=settings.full_retry_interval_us,
            )
            for log, counters in zip(self.logs, self.counters, strict=True)
        ]

    @property
    def point(self) -> int:
        return 0 if self._fake is None else self._fake.point

    def open(self) -> Session:
        try:
            for log in self.logs:
                log.open()
        except OSError as error:
            raise access_error(DATA, error) from error
        return self

    def ticket(
        self,
        topic: int = 1,
        records: int = 1,
        durability: Durability = FSYNC,
        *,
        essential: bool = False,
        size: int = 12,
    ) -> Ticket:
        """A submission of so many records, noted with the oracle. Every third has tag and node."""
        ts = self.clock.wall_ms()
        frames: list[bytes] = []
        items: list[Item] = []
        for _ in range(records):
            seq = self.heads[topic] = self.heads.get(topic, 0) + 1
            tag, node = (b"tag", b"node") if seq % 3 == 0 else (b"", b"")
            flags = FrameFlag.HAS_TAG | FrameFlag.HAS_NODE if tag else FrameFlag(0)
            data = f'{{"n":{seq}}}'.encode().ljust(size, b".")
            frames.append(
                encode_frame(
                    FrameType.APPEND,
                    topic,
                    seq=seq,
                    ts=ts,
                    flags=flags,
                    tag=tag,
                    node=node,
                    data=data,
                )
            )
            items.append(Item(str(topic), seq, b"|".join((str(ts).encode(), tag, node, data))))
        identity = next(_identities)
        self.oracle.submit(identity, items, at=self.point)
        ticket = Ticket(
            b"".join(frames),
            records,
            durability,
            essential=essential,
            context=(topic, identity, items),
        )
        self.tickets.append(ticket)
        return ticket

    def commit(self, *tickets: Ticket) -> None:
        """One group per shard that any of these belongs to."""
        for index, committer in enumerate(self.committers):
            mine = [t for t in tickets if shard_of(t.context[0], len(self.committers)) == index]
            if mine:
                committer.commit(mine)

    def append(self, topic: int = 1, records: int = 1, durability: Durability = FSYNC) -> Ticket:
        ticket = self.ticket(topic, records, durability)
        self.commit(ticket)
        return ticket

    def pass_time(self, us: int) -> None:
        self.clock.advance(us)
        for committer in self.committers:
            committer.tick()

    def trim(self, frame: int, shard: int = 0) -> int:
        """What the keeper will do: release, then delete. Returns how many files went."""
        try:
            paths = self.logs[shard].release_before(frame)
            for path in paths:
                self.disk.unlink(path)
        except OSError as error:
            raise access_error(DATA, error) from error
        return len(paths)

    def close(self) -> None:
        for committer in self.committers:
            committer.finish()
        self.lock.release()

    def abandon(self) -> Session:
        """The process is gone; on a fake disk only the lock has to be let go."""
        self.lock.release()
        return self

    def acked_items(self) -> list[Item]:
        acked = [t for t in self.tickets if t.resolved and t.error is None]
        return [item for ticket in acked for item in ticket.context[2]]

    def check_each_answered_once(self) -> None:
        """I15."""
        missing = [t.context[1] for t in self.tickets if self.answers[t.context[1]] != 1]
        assert not missing, f"submissions not answered exactly once: {missing}"

    def _on_answers(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            topic, identity, items = ticket.context
            self.answers[identity] += 1
            if ticket.error is None:
                self.oracle.ack(identity, ticket.durability, at=self.point)
            elif isinstance(ticket.error, DiskFullError):
                self.oracle.refuse(identity)
                self.heads[topic] = min(self.heads[topic], items[0].seq - 1)


def new_disk() -> FakeDisk:
    return FakeDisk([DATA.parent])


def log_files(disk: FakeDisk) -> dict[PurePath, bytes]:
    """Every file but the lock, which says nothing."""
    return {path: data for path, data in disk.files().items() if path.name != "LOCK"}


def by_stream(items: Iterable[Item]) -> dict[str, list[Item]]:
    streams: dict[str, list[Item]] = {}
    for item in items:
        streams.setdefault(item.stream, []).append(item)
    return streams
