"""Records go from the front: by request, by age, by bytes; and their space comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.core.errors import HeadwaterError
from headwater.server.kafka.refusals import code_of
from headwater.testing import FakeDisk
from headwater.wire.kafka.apis import ErrorCode
from tests.rig.kafka import KAFKA, NOW_MS, SMALL_KAFKA, KafkaLife, batch_of

UNCACHED = replace(SMALL_KAFKA, cache_bytes=0)


def filled(batches: int = 30, **configs: str) -> KafkaLife:
    """Two topics in turns, some ten batches of each in a segment or so."""
    life = KafkaLife(settings=UNCACHED)
    life.create("orders", 1, 1, **configs)
    life.create("clicks")
    for number in range(batches):
        stamp = NOW_MS + number * 1_000
        life.append("orders", batch_of(f"o{number}", f"p{number}", timestamp_ms=stamp))
        life.append("clicks", batch_of(f"c{number}"))
    return life


def restarts(life: KafkaLife) -> list[KafkaLife]:
    """The store itself, which is closed now; after a kill; after a clean stop."""
    assert isinstance(life.disk, FakeDisk)
    killed = KafkaLife(life.disk.after_kill(), life.settings, life.clock)
    return [life, killed, life.reopen()]


def orders_from(offset: int, batches: int = 30) -> list[bytes]:
    everything = [f"{kind}{n}".encode() for n in range(batches) for kind in "op"]
    return everything[offset:]


def delete(life: KafkaLife, name: str, before: int) -> int:
    return life.do(lambda: life.partition(name).delete_records(before))


def log_names(life: KafkaLife) -> set[str]:
    return set(life.disk.list_directory(KAFKA))


def logs_bytes(life: KafkaLife) -> int:
    assert isinstance(life.disk, FakeDisk)
    return sum(len(data) for path, data in life.disk.files().items() if path.suffix == ".log")


def test_removed_records_are_out_of_range_also_after_restarts() -> None:
    life = filled()
    assert delete(life, "orders", 7) == 7
    assert delete(life, "orders", 3) == 7  # a log start never goes back
    for each in restarts(life):
        assert each.partition("orders").log_start_offset == 7
        assert each.values("orders") == orders_from(7)
        with pytest.raises(HeadwaterError) as refused:
            each.fetch("orders", 6)
        assert code_of(refused.value) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_offset_that_was_never_written_cannot_be_removed_to() -> None:
    life = filled(3)
    with pytest.raises(HeadwaterError) as refused:
        delete(life, "orders", 7)
    assert code_of(refused.value) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(life, "orders", -1) == 6
    assert life.append("orders", batch_of("next")).base_offset == 6


@pytest.mark.claims(48)
def test_segments_without_a_live_record_are_deleted() -> None:
    life = filled()
    before = logs_bytes(life)
    delete(life, "orders", 40)
    delete(life, "clicks", 20)
    life.store.housekeep()
    assert life.store.counters.segments_deleted > 0
    assert "0.log" not in log_names(life)
    assert "0.oidx" not in log_names(life)
    assert logs_bytes(life) < before * 0.6
    for each in restarts(life)[1:]:
        assert each.values("orders") == orders_from(40)
        assert each.values("clicks") == [f"c{n}".encode() for n in range(20, 30)]
        assert each.partition("orders").high_watermark == 60
        assert each.append("orders", batch_of("next")).base_offset == 60


@pytest.mark.claims(4, 48)
def test_mostly_dead_segments_are_rewritten_with_what_lives() -> None:
    life = filled()
    before = logs_bytes(life)
    delete(life, "orders", 58)
    life.store.housekeep()
    assert life.store.counters.segments_rewritten > 0
    assert logs_bytes(life) < before * 0.75
    logs = {name for name in log_names(life) if name.endswith(".log")}
    indexes = {name for name in log_names(life) if name.endswith(".oidx")}
    assert {name.removesuffix(".log") for name in logs} <= {
        n.removesuffix(".oidx") for n in indexes
    }
    for each in restarts(life):
        assert each.values("orders") == orders_from(58)
        assert each.values("clicks") == [f"c{n}".encode() for n in range(30)]
        for offset in range(30):
            assert each.fetch("clicks", offset, 1)


def test_segments_are_rewritten_again_and_deleted_in_the_end() -> None:
    life = filled()
    delete(life, "orders", 60)
    life.store.housekeep()
    for start in (10, 22, 30):
        delete(life, "clicks", start)
        life.store.housekeep()
        life = life.reopen()
        assert life.values("clicks") == [f"c{n}".encode() for n in range(start, 30)]
    assert len(log_names(life)) <= 5  # the checkpoint, the active segment, perhaps one before


def test_a_dropped_topic_gives_its_space_back() -> None:
    life = filled()
    before = logs_bytes(life)
    topic = life.store.topic(1, "orders")
    assert topic is not None
    life.do(topic.drop)
    life.store.housekeep()
    assert logs_bytes(life) < before * 0.75
    for each in restarts(life):
        assert each.values("clicks") == [f"c{n}".encode() for n in range(30)]


def test_a_plan_made_before_a_rewrite_is_still_read() -> None:
    life = filled()
    plans = [life.partition("clicks").plan_fetch(at, 1) for at in range(30)]
    delete(life, "orders", 58)
    life.store.housekeep()
    assert life.store.counters.segments_rewritten > 0
    assert all(b"c%d" % at in bytes(plan.read()[0]) for at, plan in enumerate(plans))


def test_a_plan_made_before_its_segment_went_is_told_so() -> None:
    life = filled()
    plan = life.partition("clicks").plan_fetch(0, 1)
    delete(life, "orders", 60)
    delete(life, "clicks", 30)
    life.store.housekeep()
    with pytest.raises(HeadwaterError) as refused:
        plan.read()
    assert code_of(refused.value) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_batches_older_than_the_limit_go() -> None:
    life = filled(retention_ms="10000")
    life.clock.advance(25_500 * 1_000)
    life.store.housekeep()
    assert life.partition("orders").log_start_offset == 32  # those up to 15.5 s old are gone
    assert life.values("orders") == orders_from(32)
    assert len(life.values("clicks")) == 30
    life.clock.advance(10**12)
    life.store.housekeep()
    assert life.values("orders") == orders_from(58)  # the newest batch stays


def test_a_wall_clock_that_leaps_removes_nothing() -> None:
    life = filled(retention_ms="100000")
    life.clock.jump_wall(10**11)
    life.store.housekeep()
    assert life.partition("orders").log_start_offset == 0


def test_a_partition_over_its_bytes_loses_its_oldest_batches() -> None:
    one = len(batch_of("o10", "p10")) + 4
    life = filled(retention_bytes=str(one * 10))
    life.store.housekeep()
    partition = life.partition("orders")
    assert partition.log_start_offset == 40
    assert partition.bytes == one * 10
    for each in restarts(life):
        assert each.values("orders") == orders_from(40)
        assert each.partition("orders").bytes == one * 10


def test_bytes_follow_what_was_removed_by_request() -> None:
    one = len(batch_of("o10", "p10")) + 4
    life = filled(retention_bytes=str(10**9))
    delete(life, "orders", 51)  # in the middle of a batch, which stays
    life.store.housekeep()
    assert life.partition("orders").bytes == one * 5
    delete(life, "orders", 56)
    life.store.housekeep()
    assert life.partition("orders").bytes == one * 2


def test_a_search_by_time_survives_a_rewrite_and_is_told_of_a_removal() -> None:
    life = filled()
    partition = life.partition("clicks")
    search = partition.find_timestamp(NOW_MS)
    late = partition.find_timestamp(NOW_MS)
    newest, late_newest = partition.find_newest(), partition.find_newest()
    delete(life, "orders", 58)
    life.store.housekeep()
    assert life.store.counters.segments_rewritten > 0
    assert search.read() == newest.read() == (0, NOW_MS)
    delete(life, "orders", 60)
    delete(life, "clicks", 30)
    life.store.housekeep()
    for each in (late, late_newest):
        with pytest.raises(HeadwaterError) as refused:
            each.read()
        assert code_of(refused.value) == ErrorCode.OFFSET_NOT_AVAILABLE


def test_a_segment_between_others_can_go_alone() -> None:
    life = KafkaLife(settings=UNCACHED)
    life.create("orders")
    life.create("clicks")
    for number in range(12):  # a segment or more of each, one after the other
        life.append("orders", batch_of(f"o{number}"))
    for number in range(60):
        life.append("clicks", batch_of(f"c{number}"))
    for number in range(12, 24):
        life.append("orders", batch_of(f"o{number}"))
    plan = life.partition("clicks").plan_fetch(30, 1)
    delete(life, "clicks", 60)
    life.store.housekeep()
    assert life.store.counters.segments_deleted > 0
    assert "0.log" in log_names(life)
    with pytest.raises(HeadwaterError) as refused:
        plan.read()
    assert code_of(refused.value) == ErrorCode.OFFSET_OUT_OF_RANGE
    for each in restarts(life)[1:]:
        assert each.values("orders") == [f"o{n}".encode() for n in range(24)]
        assert each.partition("clicks").log_start_offset == 60
        assert each.append("clicks", batch_of("next")).base_offset == 60
        assert each.values("clicks") == [b"next"]
