"""A life of an engine on a fake disk: operations, crashes and restarts, checked against a world.

Every operation first changes a copy of the world, so that a crash in the middle of it can be held
against both: what was before, and what would have been after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar

from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.core.errors import HeadwaterError
from headwater.core.results import Appended
from headwater.disk import Disk
from headwater.engine.database import Database
from headwater.engine.drivers import BlockingDriver
from headwater.engine.engine import Engine
from headwater.engine.operation import Answered, AsOwner, Operation
from headwater.engine.topics.publisher import Write
from headwater.engine.topics.record_encoding import EncodedRecords, KeyedPart, encode_records
from headwater.model.match import parse_match
from headwater.testing import FakeDisk, FaultDisk, ManualClock
from tests.rig.comparison import Judge, agree, is_ahead
from tests.rig.stepped import SteppedForwarder, SteppedMaintenance, SteppedOwner, SteppedWal
from tests.rig.world import Expected, World

T = TypeVar("T")

DATA = PurePosixPath("/data")
COLD = PurePosixPath("/cold")
NO_KEYS: Final[Mapping[str, list[str]]] = {}

SMALL = EngineSettings(
    wal=WalSettings(
        shards=1,
        file_bytes=4096,
        reserve_bytes=256,
        zero_chunk_bytes=4096,
        head_ahead=8,
        copies_ahead=8,
        switch_interval_us=None,
    ),
    segments=SegmentSettings(segment_max_events=5, segment_max_bytes=2000, hot_retain_segments=1),
    cold_url=str(COLD),
    checkpoint_tail_bytes=300,
    cache_bytes=400,
    snapshot_wal_bytes=8192,
    replay_frames_max=20,
)
"""Everything happens all the time: rotation, sealing, trimming, relocation."""


def with_shards(settings: EngineSettings, shards: int) -> EngineSettings:
    return replace(settings, wal=replace(settings.wal, shards=shards))


def _turn(
    engine: Engine, batches: dict[str, EncodedRecords]
) -> Operation[list[Appended | HeadwaterError]]:
    """Writes to several topics as one turn of a loop brings them: each has its own answer."""
    started = yield AsOwner(
        lambda: engine.append_turn({engine.topic(name): batches[name] for name in batches})
    )
    answers: list[Appended | HeadwaterError] = []
    for write in started:
        if isinstance(write, HeadwaterError):
            answers.append(write)
            continue
        try:
            answer: Appended = yield Answered(partial(_itself, write))
            answers.append(answer)
        except HeadwaterError as error:
            answers.append(error)
    return answers


def _itself(write: Write) -> Write:
    return write


def new_disk() -> FakeDisk:
    return FakeDisk(["/", COLD])


def open_stepped(disk: Disk, settings: EngineSettings, clock: ManualClock) -> Database:
    owner = SteppedOwner()

    class OwnWal(SteppedWal):
        def start(self) -> None:
            super().start()
            owner.wal = self

    engine = Engine(
        disk,
        DATA,
        settings,
        clock,
        owner,
        make_wal=OwnWal,
        make_maintenance=SteppedMaintenance,
        make_forwarder=SteppedForwarder,
    )
    return Database(engine, BlockingDriver(engine.core))


@dataclass(frozen=True)
class Moment:
    """The world from this point of the disk's trace on."""

    point: int
    world: World


class Life:
    def __init__(
        self,
        fake: FakeDisk,
        disk: Disk | None = None,
        settings: EngineSettings = SMALL,
        clock: ManualClock | None = None,
        world: World | None = None,
    ) -> None:
        self.fake = fake
        self.disk: Disk = fake if disk is None else disk
        self.settings = settings
        self.clock = clock or ManualClock()
        self.world = world or World()
        self.next_world: World | None = None
        """While an operation is under way: what the world will be after it."""
        self.moments = [Moment(fake.point, self.world.copy())]
        self.wall_max_ms = self.clock.wall_ms()
        self.db = open_stepped(self.disk, settings, self.clock)

    @property
    def wal(self) -> SteppedWal:
        wal = self.db.engine.core.wal
        assert isinstance(wal, SteppedWal)
        return wal

    @property
    def owner(self) -> SteppedOwner:
        owner = self.db.engine.core.owner
        assert isinstance(owner, SteppedOwner)
        return owner

    @property
    def judge(self) -> Judge:
        self.wall_max_ms = max(self.wall_max_ms, self.clock.wall_ms())
        return Judge(self.db, self.wall_max_ms)

    # Operations.

    def _do(self, change: Callable[[World], Expected], work: Callable[[], T]) -> T | None:
        """Run an operation; its answer must be the one the world expects."""
        after = self.world.copy()
        expected = change(after)
        self.next_world = after
        try:
            answer = work()
        except HeadwaterError as error:
            if expected.error is None or not isinstance(error, expected.error):
                raise
            self.next_world = None
            return None
        assert expected.error is None, f"should have been refused with {expected.error}"
        self.world, self.next_world = after, None
        self.moments.append(Moment(self.fake.point, after.copy()))
        return answer

    def create(self, name: str, **settings: Any) -> None:
        state = self._do(
            lambda world: world.create(name, settings), lambda: self.db.create(name, **settings)
        )
        if state is not None:
            assert state.epoch == self.world.topics[name].epoch

    def append(
        self,
        name: str,
        records: list[dict[str, Any]],
        *,
        key: str | None = None,
        expect_head_seq: int | None = None,
    ) -> None:
        expected = Expected()

        def change(world: World) -> Expected:
            nonlocal expected
            wall_ms = self.clock.wall_ms()
            expected = world.append(name, records, wall_ms, key, expect_head_seq)
            return expected

        self.settle_ages()
        key = self._sure(name, key)
        answer = self._do(
            change,
            lambda: self.db.append(
                name, records, idempotency_key=key, expect_head_seq=expect_head_seq
            ),
        )
        if answer is not None:
            assert (answer.first_seq, answer.last_seq, answer.deduped) == expected.value

    def append_turn(
        self, batches: dict[str, list[dict[str, Any]]], keys: Mapping[str, list[str]] = NO_KEYS
    ) -> None:
        """What one turn of a server's loop brought: for each topic single writes as one batch,
        some with keys of their own."""

        encoded = {name: encode_records(brought) for name, brought in batches.items()}
        for name, own in keys.items():
            encoded[name].keys = [KeyedPart(key.encode(), at, 1) for at, key in enumerate(own)]
        for each in encoded.values():
            each.writers = len(each)
        self.settle_ages()
        self.next_world = self.world.copy()
        foretold = {
            name: self._foretell(self.next_world, name, brought, keys)
            for name, brought in batches.items()
        }
        answers = dict(zip(batches, self.db.drive(_turn(self.db.engine, encoded)), strict=True))
        for name, answer in answers.items():
            if not isinstance(answer, HeadwaterError):
                assert (answer.first_seq, answer.last_seq) == foretold[name]
                self._foretell(self.world, name, batches[name], keys)
        self.moments.append(Moment(self.fake.point, self.world.copy()))
        errors = [each for each in answers.values() if isinstance(each, HeadwaterError)]
        if errors:
            raise errors[0]  # what was answered is there; the rest may be, which is the next world
        self.next_world = None

    def _foretell(
        self,
        world: World,
        name: str,
        brought: list[dict[str, Any]],
        keys: Mapping[str, list[str]],
    ) -> tuple[int, int]:
        expected = world.append(name, brought, self.clock.wall_ms())
        assert expected.error is None, "the script gives no reason to refuse"
        world.topics[name].key_each(keys.get(name, []), self.clock.wall_ms())
        first_seq, last_seq, _ = expected.value
        return first_seq, last_seq

    def _sure(self, name: str, key: str | None) -> str | None:
        """The key, unless the clock made it expire and then went back: both answers are right."""
        topic = self.world.topics.get(name)
        if topic is not None and key in topic.unsure:
            return None
        known = None if topic is None or key is None else topic.keys.get(key)
        if topic is not None and known is not None and is_ahead(known, topic, self.clock.wall_ms()):
            return None
        if known is None or self.judge.wall_max_ms < known.expires_ts:
            return key
        return key if self.clock.wall_ms() >= known.expires_ts else None

    def delete(self, name: str, *, before_seq: int | None = None, match: str | None = None) -> None:
        matcher = None if match is None else parse_match(match)
        expected = Expected()

        def change(world: World) -> Expected:
            nonlocal expected
            expected = world.delete(name, before_seq, matcher)
            return expected

        self.settle_ages()
        answer = self._do(change, lambda: self.db.delete(name, before_seq=before_seq, match=match))
        if answer is not None:
            assert answer.deleted == expected.value

    def drop(self, name: str) -> None:
        self._do(lambda world: world.drop(name), lambda: self.db.drop(name))

    def checkpoint(self) -> None:
        """Everything into segments, then a snapshot."""

        def change(world: World) -> Expected:
            world.snapshot()
            return Expected()

        self._do(change, self.db.checkpoint)

    def absorb(self) -> None:
        """What is large goes into segments; no snapshot."""
        checkpointer = self.db.engine._housekeeping._checkpointer
        self._do(lambda _: Expected(), lambda: checkpointer.run(full=False))

    def reclaim(self) -> None:
        reclaimer = self.db.engine._housekeeping._reclaimer
        self._do(lambda _: Expected(), reclaimer.run)

    def round(self) -> None:
        """Whatever the keeper would do now."""
        keeper = self.db.engine._maintenance
        assert isinstance(keeper, SteppedMaintenance)
        self._do(lambda _: Expected(), keeper.round)

    def tick(self, us: int) -> None:
        self.clock.advance(us)
        self.wal.tick()

    def close(self) -> None:
        def change(world: World) -> Expected:
            world.snapshot()
            return Expected()

        self._do(change, self.db.close)
        self.world.stopped()
        self.moments.append(Moment(self.fake.point, self.world.copy()))

    def reopen(self, settings: EngineSettings | None = None) -> None:
        """After a clean stop."""
        self.settings = settings or self.settings
        self._do(lambda _: Expected(), self._open)
        if isinstance(self.disk, FaultDisk) and any(fault.struck for fault in self.disk.faults):
            # The stop may not have been as clean as it should have been.
            self.world = self.judge.identify([self.world], False, "reopened after trouble")
        self.check()

    def _open(self) -> None:
        self.db = open_stepped(self.disk, self.settings, self.clock)

    # Judgements.

    def settle_ages(self) -> None:
        """Have expired what is due, so that what follows can be foretold."""
        self.judge.follow_ages(self.world)

    def check(self) -> None:
        """Every promise that can be seen from outside, on the running engine."""
        self.settle_ages()
        self.judge.check(self.world)

    def worlds_at(self, point: int) -> list[World]:
        """What may be there after a crash at this point of the trace."""
        at = max(i for i, moment in enumerate(self.moments) if moment.point <= point)
        # Moments that share a point: the operation between them did nothing to the disk.
        first = next(i for i, m in enumerate(self.moments) if m.point == self.moments[at].point)
        candidates = [moment.world for moment in self.moments[first : at + 2]]
        if at + 1 == len(self.moments) and self.next_world is not None:
            candidates.append(self.next_world)
        return candidates

    def reborn(
        self, state: FakeDisk, worlds: list[World], settings: EngineSettings | None = None
    ) -> Life:
        """Recover on what a crash left, find out which world it is, and go on living in it."""
        next_life = Life(state, settings=settings or self.settings, clock=self.clock)
        next_life.wall_max_ms = self.wall_max_ms
        world = next_life.judge.recognise(worlds, state)
        next_life.world = world
        next_life.moments = [Moment(0, world.copy())]
        return next_life

    def abandon(self) -> None:
        """The process is gone."""
        self.db.engine._lock.release()

    def states(self, *args: Any, **kwargs: Any) -> Iterator[FakeDisk]:
        return self.fake.crash_states(*args, **kwargs)


def check_again(life: Life, state: FakeDisk) -> None:
    """Recovering once more gives the same (I4)."""
    twin = Life(state.clone(), settings=life.settings, clock=life.clock)
    agree(life.judge, twin.judge, state.label)
    twin.abandon()
