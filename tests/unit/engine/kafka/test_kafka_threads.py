"""The store as it is used: a thread for the log, a keeper, several callers, a real disk."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from headwater.config.kafka import KafkaSettings
from headwater.core.clock import SystemClock
from headwater.core.durability import Durability
from headwater.core.units import KIB
from headwater.disk import PosixDisk
from headwater.engine.kafka.store import KafkaStore
from headwater.engine.owner import BatonOwner, LoopOwner, Owner, wait_for
from headwater.engine.partition import Produced
from headwater.format.kafka.records import decode_records
from headwater.observe.waits import Waits
from tests.rig.kafka import batch_of
from tests.server.running_server import eventually

SETTINGS = KafkaSettings(
    segment_bytes=64 * KIB,
    log_ahead_bytes=8 * KIB,
    index_ahead_bytes=4 * KIB,
    cache_bytes=16 * KIB,
    checkpoint_bytes=16 * KIB,
    maintenance_interval_ms=5,
    retention_interval_ms=5,
)
WRITERS, BATCHES = 4, 60


def opened(directory: Path, owner: Owner) -> KafkaStore:
    return KafkaStore(PosixDisk(), directory / "kafka", SETTINGS, SystemClock(), owner)


def wait(owner: BatonOwner, work: object) -> object:
    """Start something as the owner and block until it is answered."""
    return wait_for(owner, work).answer()  # type: ignore[arg-type]


def read_all(store: KafkaStore, owner: BatonOwner, name: str) -> list[bytes]:
    topic = store.topic(1, name)
    assert topic is not None
    offset, found = 0, []
    while offset < topic.partitions[0].high_watermark:
        at = offset
        plan = owner.call(lambda at=at: topic.partitions[0].plan_fetch(at, 4_000))  # type: ignore[misc]
        for batch in plan.read():
            records = decode_records(batch)
            found += [record.value or b"" for record in records]
            offset += len(records)
    return found


def test_many_threads_write_and_read_while_the_keeper_keeps(tmp_path: Path) -> None:
    owner = BatonOwner()
    store = opened(tmp_path, owner)
    for number in range(WRITERS):
        wait(owner, lambda n=number: store.create_topic(1, f"t{n}", 1))
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            topic = store.topic(1, f"t{number}")
            assert topic is not None
            classes = (Durability.FSYNC, Durability.DISK)
            for at in range(BATCHES):
                batch = batch_of(f"{number}-{at}-a" + "x" * 100, f"{number}-{at}-b")
                answer = wait(
                    owner,
                    lambda batch=batch, at=at: topic.partitions[0].append(batch, classes[at % 2]),
                )
                assert answer == Produced(2 * at, -1, 0)
                if at % 20 == 0:
                    assert len(read_all(store, owner, f"t{number}")) == 2 * at + 2
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    eventually(lambda: store.counters.checkpoints > 1)  # the keeper may be writing it just now
    before = {f"t{number}": read_all(store, owner, f"t{number}") for number in range(WRITERS)}
    store.close()
    store = opened(tmp_path, owner)
    for name, values in before.items():
        assert len(values) == 2 * BATCHES
        assert read_all(store, owner, name) == values
    store.close()


def test_an_event_loop_is_the_owner_and_never_waits(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        store = await asyncio.to_thread(
            opened, tmp_path, LoopOwner(loop, SystemClock(), Waits(SystemClock(), 0))
        )
        made: asyncio.Future[None] = loop.create_future()
        creation = store.create_topic(1, "orders", 1)
        creation.on_done = lambda _: made.set_result(None)
        await made
        partition = creation.answer().partitions[0]
        done: asyncio.Future[None] = loop.create_future()
        pendings = [partition.append(batch_of(f"{at}"), Durability.FSYNC) for at in range(100)]
        pendings[-1].on_done = lambda _: done.set_result(None)
        await done
        assert [pending.answer().base_offset for pending in pendings] == list(range(100))
        assert not partition.plan_fetch(99, 1).needs_files
        await asyncio.to_thread(store.close)

    asyncio.run(main())


def test_one_round_removes_all_that_is_beyond_the_limit(tmp_path: Path) -> None:
    """Each step of it waits for the log, which another thread writes."""
    owner = BatonOwner()
    hour_ms = 3_600_000
    alone = KafkaSettings(maintenance_interval_ms=hour_ms, retention_interval_ms=hour_ms)
    store = KafkaStore(PosixDisk(), tmp_path / "kafka", alone, SystemClock(), owner)
    wait(owner, lambda: store.create_topic(1, "orders", 1, {"retention.bytes": "100000"}))
    topic = store.topic(1, "orders")
    assert topic is not None
    (partition,) = topic.partitions
    batch = batch_of(*["x"] * 2_000)
    for _ in range(30):
        wait(owner, lambda: partition.append(batch, Durability.DISK))
    assert partition.high_watermark == 60_000  # several windows of what is looked at together
    store.housekeep()
    assert partition.bytes <= 100_000
    store.close()
