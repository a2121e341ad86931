"""What a consumer is told where records cannot be read: of Kafka's own topics and of log topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.config.kafka import KafkaSettings
from headwater.engine.kafka.errors import DamagedBatchError
from headwater.server.kafka.refusals import code_of
from headwater.testing import FakeDisk
from headwater.wire.kafka.apis import ErrorCode
from tests.rig.kafka import KAFKA, LARGE_KAFKA, KafkaLife, batch_of

UNCACHED = replace(LARGE_KAFKA, cache_bytes=0)


def life_with_batches(settings: KafkaSettings = UNCACHED) -> KafkaLife:
    """Four batches of two records: offsets 0 to 7."""
    life = KafkaLife(FakeDisk(["/data"]), settings)
    life.create("orders")
    for n in range(4):
        life.append("orders", batch_of(f"first {n}", f"second {n}"))
    return life


def damage(life: KafkaLife, text: bytes) -> int:
    disk, path = life.disk, KAFKA / "0.log"
    assert isinstance(disk, FakeDisk)
    contents = disk.files()[path]
    at = contents.index(text)
    disk.write_file(path, contents[:at] + bytes((contents[at] ^ 1,)) + contents[at + 1 :])
    return at


def offsets(batches: list[bytes]) -> list[int]:
    return [int.from_bytes(batch[:8], "big") for batch in batches]


def test_what_is_before_a_damaged_batch_is_served_and_a_fetch_at_it_is_refused() -> None:
    life = life_with_batches()
    damage(life, b"first 2")
    assert offsets(life.fetch("orders", 0)) == [0, 2]
    for offset in (4, 5):
        with pytest.raises(DamagedBatchError) as refused:
            life.fetch("orders", offset)
        assert code_of(refused.value) is ErrorCode.CORRUPT_MESSAGE
        assert (refused.value.first_offset, refused.value.end_offset) == (offset, 6)
        assert "0.log" in str(refused.value)
    assert offsets(life.fetch("orders", 6)) == [6]


def test_a_damaged_batch_is_kept_and_counted_once_however_often_it_is_fetched() -> None:
    life = life_with_batches()
    at = damage(life, b"first 2")
    for _ in range(4):
        with pytest.raises(DamagedBatchError):
            life.fetch("orders", 4)
    (place,) = life.store.core.damage.ranges
    assert (place.topic, place.first_seq, place.last_seq) == ("kafka:orders:0", 5, 6)
    assert place.offset < at
    assert place.path == str(KAFKA / "0.log")
    assert life.store.core.counters.damaged_batches == 1
    assert life.store.core.damage.records == {("kafka:orders:0", 1): 2}
    life.do(life.partition("orders").topic.drop)
    assert not life.store.core.damage.ranges


@pytest.mark.parametrize("which", [0, 2, 3])
def test_a_consumer_that_may_pass_it_goes_on_behind_it(which: int) -> None:
    life = life_with_batches()
    damage(life, b"first %d" % which)
    offset, seen = 0, []
    while offset < 8:
        plan = life.partition("orders").plan_fetch(offset, 1)
        plan.skips_damaged = True
        for batch in plan.read():
            base, delta = int.from_bytes(batch[:8], "big"), int.from_bytes(batch[23:27], "big")
            count = int.from_bytes(batch[57:61], "big")
            seen.append((base, count))
            offset = base + delta + 1
    assert seen == [(2 * n, 0 if n == which else 2) for n in range(4)]
