"""Lives of an engine for the jobs to work on: random operations, restarts, crashes, torn tails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath, PurePosixPath
from typing import Any

from hypothesis import strategies as st

from headwater.config.engine import EngineSettings
from headwater.core.errors import HeadwaterError
from headwater.engine.database import Database
from headwater.format.names import parse_wal_file_name
from headwater.recovery.topics.report import inspect_wal
from headwater.spark.jobs.checkpoint import CheckpointOptions, CheckpointReport, checkpoint
from headwater.testing import FakeDisk, ManualClock
from tests.rig.life import COLD, DATA, SMALL, open_stepped, with_shards
from tests.rig.scripts import records
from tests.spark.local_checkpoint import OneProcess

OUTPUT = PurePosixPath("/output")
TOPICS = ("one", "two", "three", "four")
QUEUE = "jobs"
WORKER = "worker"
WITHOUT_COLD = replace(SMALL, cold_url=None)
Operation = tuple[Any, ...]

_topic = st.sampled_from(TOPICS)
_tag = st.sampled_from([None, "a", "b", "bb", "c"])
_append = st.tuples(
    st.just("append"), _topic, st.integers(1, 9), _tag, st.sampled_from([4, 30, 300])
)
_keyed = st.tuples(st.just("keyed"), _topic, st.integers(1, 3), st.sampled_from(["k", "l"]))
_delete = st.one_of(
    st.tuples(st.just("below"), _topic, st.integers(0, 30)),
    st.tuples(st.just("match"), _topic, st.sampled_from(["a", "b*", "b", "*", "zz"])),
    st.tuples(st.just("both"), _topic, st.integers(0, 30), st.sampled_from(["a", "b*"])),
)


def _configure(*classes: str) -> st.SearchStrategy[Operation]:
    return st.tuples(
        st.just("create"),
        _topic,
        st.fixed_dictionaries(
            {},
            optional={
                "durability": st.sampled_from(classes),
                "cap_records": st.sampled_from([0, 3, 12]),
                "cap_bytes": st.sampled_from([0, 400]),
                "ttl_ms": st.sampled_from([0, 5_000]),
            },
        ),
    )


_logged = _configure("fsync", "disk", "memory")
_any_class = _configure("fsync", "disk", "memory", "ephemeral")
_drop = st.tuples(st.just("drop"), _topic)
_tick = st.tuples(st.just("tick"), st.sampled_from([1_000, 3_000_000]))
_kill = st.tuples(st.just("kill"), st.sampled_from([1, 2, 3]))
_keeping = st.sampled_from([("checkpoint",), ("absorb",), ("reclaim",), ("round",)])
_restart = st.tuples(st.just("restart"), st.sampled_from([1, 2, 3]))

_jobs = st.one_of(
    st.tuples(st.just("append"), st.just(QUEUE), st.integers(1, 5), _tag, st.just(4)),
    st.tuples(st.just("claim"), st.integers(1, 4), st.sampled_from([1, 60_000])),
    st.tuples(st.just("ack"), st.integers(1, 3)),
    st.tuples(st.just("nack"), st.integers(1, 3), st.sampled_from([0, 9_000])),
)
_writing = st.one_of(_append, _append, _append, _keyed, _delete, _tick, _jobs)

IN_ONE_LIFE = st.lists(st.one_of(_writing, _any_class, _drop), min_size=1, max_size=25)
"""Nothing is checkpointed: all there is is in the log."""
IN_SEVERAL_LIVES = st.lists(
    st.one_of(_writing, _any_class, _drop, _kill, _keeping, _restart), min_size=1, max_size=30
)
ALL_IN_THE_LOG = st.lists(
    st.one_of(_writing, _logged, _drop, _kill, _keeping, _restart), min_size=1, max_size=30
)
"""Several lives, and no record that the log never had."""
TRIMMING = frozenset({"checkpoint", "round", "restart"})
"""Operations that may let log files go."""


def _settings(topic: str, **settings: Any) -> Operation:
    return ("create", topic, settings)


def _records(topic: str, count: int, tag: str | None = None, size: int = 30) -> Operation:
    return ("append", topic, count, tag, size)


ONE_LIFE: dict[str, list[Operation]] = {
    "seqs that were reserved and never used": [
        _settings("one", durability="disk"), _records("one", 3),
    ],
    "ephemeral until now": [
        _settings("one", durability="ephemeral"), _records("one", 4),
        _settings("one", durability="fsync"), _records("one", 2),
    ],
    "ephemeral from now on": [
        _records("one", 4), _settings("one", durability="ephemeral"), _records("one", 4),
    ],
    "deleted by tag, by prefix and below": [
        _records("one", 4, "a"), _records("one", 3, "b"), _records("one", 3, "bb"),
        _records("one", 4, "c"), ("match", "one", "b"), ("both", "one", 3, "a"),
        _records("one", 2, "b"), ("match", "one", "b*"), _records("one", 2, "bb"),
    ],
    "room that a delete makes brings nothing back": [
        _settings("one", cap_records=6), _records("one", 4, "a"), _records("one", 4, "b"),
        ("match", "one", "b"), _records("one", 2, "c"),
    ],
    "a wider cap brings nothing back": [
        _settings("one", cap_records=3), _records("one", 9), _settings("one", cap_records=12),
        _records("one", 2),
    ],
    "too old": [
        _settings("one", ttl_ms=5_000), _records("one", 6), ("tick", 4_000_000), _records("one", 3),
        ("tick", 3_000_000),
    ],
    "dropped and made again": [
        _records("one", 4), ("drop", "one"), _records("two", 1), _records("one", 2),
    ],
    "dropped and made again, in other shards": [
        *([_records("one", 2), ("drop", "one")] * 4), _records("one", 3),
    ],
    "jobs that are held, done and given back": [
        _records(QUEUE, 5), ("claim", 4, 60_000), ("ack", 1), ("nack", 1, 9_000),
        ("claim", 1, 60_000), _records(QUEUE, 1),
    ],
    "keys": [("keyed", "one", 2, "k"), ("keyed", "one", 2, "l"), _records("one", 1)],
}  # fmt: skip
"""Each of what the log can say about a topic, in a log that nobody has read back."""

SEVERAL_LIVES: dict[str, list[Operation]] = {
    "reserved seqs are lost with a kill": [
        _settings("one", durability="disk"), _records("one", 3), ("kill", 1), _records("one", 2),
        ("kill", 2), _records("one", 1),
    ],
    "reserved seqs come back with a clean stop": [
        _settings("one", durability="disk"), _records("one", 3), ("restart", 2), _records("two", 1),
    ],
    "the active segment is grown": [
        _records("one", 3), ("checkpoint",), _records("one", 4), ("kill", 1), _records("one", 2),
    ],
    "the active segment is left behind by a cap": [
        _settings("one", cap_records=3), _records("one", 3), ("checkpoint",), _records("one", 9),
    ],
    "all that is behind the active segment is deleted": [
        _records("one", 3), ("checkpoint",), _records("one", 4), ("below", "one", 100),
    ],
    "deletes reach into segments": [
        _records("one", 4, "a"), _records("one", 4, "b"), ("checkpoint",), _records("one", 2, "a"),
        ("match", "one", "a"), ("below", "one", 2),
    ],
    "deletes reach into the cold tier": [
        _records("one", 4, "a"), _records("one", 8, "b"), ("checkpoint",), ("reclaim",),
        _records("one", 3, "b"), ("match", "one", "b*"),
    ],
    "rewritten and moved": [
        _records("one", 8, "a", 200), _records("one", 2, "b"), ("checkpoint",),
        ("match", "one", "a"), ("checkpoint",), ("reclaim",), ("reclaim",), _records("one", 1),
    ],
    "floors that only a mark tells": [
        _settings("one", cap_records=4), _records("one", 9), ("round",), ("absorb",),
        _records("one", 2), ("checkpoint",), _records("one", 3),
    ],
    "ephemeral, and only the snapshot knows the head": [
        _settings("one", durability="ephemeral"), _records("one", 4), ("checkpoint",),
        _records("one", 2),
    ],
    "ephemeral behind logged ones": [
        _records("one", 3), _settings("one", durability="ephemeral"), _records("one", 4),
        ("checkpoint",), _records("one", 2),
    ],
    "ephemeral over a snapshot": [
        _settings("one", durability="ephemeral"), _records("one", 4), ("checkpoint",),
        _records("one", 2), ("kill", 1), _settings("one", durability="fsync"), _records("one", 2),
    ],
    "dropped, and the snapshot knows it": [
        _records("one", 4), ("checkpoint",), ("drop", "one"), ("checkpoint",), _records("one", 2),
        ("drop", "one"), _records("two", 3),
    ],
    "trimmed, moved between shards": [
        *([_records("one", 6, "a", 300), _records("two", 6, "b", 300), ("checkpoint",)] * 3),
        ("restart", 3), _records("one", 3), _records("two", 3), ("restart", 2), _records("one", 1),
    ],
    "leases over a restart": [
        _records(QUEUE, 5), ("claim", 4, 60_000), ("checkpoint",), ("ack", 1), ("kill", 1),
        ("nack", 1, 9_000), _records(QUEUE, 2),
    ],
    "nothing since the last stop": [_records("one", 12), _records("two", 3), ("restart", 1)],
}  # fmt: skip


class Engine:
    """Does operations on a fake disk; a killed engine comes back by itself."""

    def __init__(self, settings: EngineSettings = SMALL, shards: int = 1) -> None:
        self.disk = FakeDisk(["/", COLD])
        self.clock = ManualClock()
        self.settings = with_shards(settings, shards)
        self.db = self._open()
        self.held: list[int] = []
        """Jobs that were claimed and not settled."""

    def _open(self) -> Database:
        return open_stepped(self.disk, self.settings, self.clock)

    def do(self, operations: list[Operation], archive: PurePath | None = None) -> None:
        """With an `archive`, the log is copied there before any of its files can go."""
        for number, (name, *given) in enumerate(operations):
            self.clock.advance(1_000)
            if archive is not None and name in TRIMMING:
                self.copy_log(archive / f"{number:02d}")
            try:
                getattr(self, name)(*given)
            except HeadwaterError:
                continue  # refused: a topic that is not there, or may not become that

    def append(self, topic: str, count: int, tag: str | None, size: int) -> None:
        self.db.append(topic, records(count, tag, size))

    def keyed(self, topic: str, count: int, key: str) -> None:
        self.db.append(topic, records(count), idempotency_key=key)

    def below(self, topic: str, seq: int) -> None:
        self.db.delete(topic, before_seq=seq)

    def match(self, topic: str, match: str) -> None:
        self.db.delete(topic, match=match)

    def both(self, topic: str, seq: int, match: str) -> None:
        self.db.delete(topic, before_seq=seq, match=match)

    def create(self, topic: str, settings: dict[str, Any]) -> None:
        self.db.create(topic, **settings)

    def drop(self, topic: str) -> None:
        self.db.drop(topic)

    def claim(self, count: int, lease_ms: int) -> None:
        if self.db.engine.find(QUEUE) is None:
            self.db.create(QUEUE, type="queue", leases_durable=True)
        self.held += self.db.claim(QUEUE, WORKER, count, lease_ms=lease_ms).seqs

    def ack(self, count: int) -> None:
        seqs, self.held = self.held[:count], self.held[count:]
        self.db.ack(QUEUE, WORKER, seqs)

    def nack(self, count: int, delay_ms: int) -> None:
        seqs, self.held = self.held[:count], self.held[count:]
        self.db.nack(QUEUE, WORKER, seqs, delay_ms=delay_ms)

    def tick(self, us: int) -> None:
        self.clock.advance(us)

    def checkpoint(self) -> None:
        self.db.checkpoint()

    def absorb(self) -> None:
        self.db.engine._housekeeping._checkpointer.run(full=False)

    def reclaim(self) -> None:
        self.db.engine._housekeeping._reclaimer.run()

    def round(self) -> None:
        self.db.engine._housekeeping.round()

    def kill(self, shards: int) -> None:
        self.stop()
        self.settings = with_shards(self.settings, shards)
        self.db = self._open()

    def restart(self, shards: int) -> None:
        self.db.close()
        self.settings = with_shards(self.settings, shards)
        self.db = self._open()

    def copy_log(self, target: PurePath) -> None:
        for path, content in self.disk.files().items():
            if DATA / "wal" in path.parents:
                self.disk.write_file(target / path.relative_to(DATA / "wal"), content)

    def stop(self) -> None:
        """The process is gone."""
        self.db.engine._lock.release()


def tear(disk: FakeDisk, wal: PurePath, garbage: bytes) -> None:
    """Leave what an unfinished write leaves behind the last whole group of every log."""
    for shard in inspect_wal(disk, wal).shards:
        last = shard.last
        if last is not None and last.end + len(garbage) < last.length:
            assert parse_wal_file_name(last.path.name) is not None
            disk.damage(last.path, last.end, garbage)


def absorbed_by_engine(
    disk: FakeDisk, settings: EngineSettings, clock: ManualClock
) -> tuple[Database, dict[PurePath, bytes]]:
    """What the engine's own checkpoint leaves in the topics' directories."""
    db = open_stepped(disk, settings, clock)
    db.checkpoint()
    return db, topic_files(disk, DATA)


def topic_files(disk: FakeDisk, root: PurePath) -> dict[PurePath, bytes]:
    topics = root / "topics"
    return {
        path.relative_to(topics): content
        for path, content in disk.files().items()
        if topics in path.parents
    }


def checkpoint_here(
    disk: FakeDisk,
    clock: ManualClock,
    path: PurePath = DATA,
    output: PurePath = OUTPUT,
    settings: EngineSettings = SMALL,
    **options: Any,
) -> CheckpointReport:
    chosen = CheckpointOptions(
        path=str(path),
        output=str(output),
        segment_max_events=settings.segments.segment_max_events,
        segment_max_bytes=settings.segments.segment_max_bytes,
        **options,
    )
    return checkpoint(disk, clock, OneProcess(disk), chosen)
