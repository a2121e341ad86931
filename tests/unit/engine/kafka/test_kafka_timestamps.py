"""ListOffsets by time is exact, whatever the order of timestamps."""

from __future__ import annotations

import pytest

from headwater.format.kafka.records import NewRecord, encode_batch
from tests.rig.kafka import KafkaLife, batch_of

TIMES = [100, 120, 110, 90, 300, 300, 250, 400, 10, 410, 405, 500]


def life_with_times() -> KafkaLife:
    life = KafkaLife()
    life.create("orders")
    life.create("other")
    for at in range(0, len(TIMES), 3):
        records = [NewRecord(time, None, b"x") for time in TIMES[at : at + 3]]
        life.append("orders", encode_batch(records, codec=(0, 4)[at % 2]))
        life.append("other", batch_of("y" * 200))
    return life


def search(life: KafkaLife, timestamp_ms: int) -> tuple[int, int] | None:
    partition = life.partition("orders")
    return life.owner.call(lambda: partition.find_timestamp(timestamp_ms)).read()


def first_not_older(timestamp_ms: int, start: int = 0) -> tuple[int, int] | None:
    for offset, time in enumerate(TIMES):
        if offset >= start and time >= timestamp_ms:
            return offset, time
    return None


@pytest.mark.claims(50)
def test_the_first_record_that_is_not_older_is_found() -> None:
    life = life_with_times()
    for timestamp_ms in {0, 501, *TIMES, *(time + 1 for time in TIMES)}:
        assert search(life, timestamp_ms) == first_not_older(timestamp_ms)


def test_removed_records_are_not_found_by_their_time() -> None:
    life = life_with_times()
    life.do(lambda: life.partition("orders").delete_records(5))
    for timestamp_ms in {0, 501, *TIMES}:
        assert search(life, timestamp_ms) == first_not_older(timestamp_ms, 5)


def test_an_empty_partition_has_no_record_of_any_time() -> None:
    life = KafkaLife()
    life.create("orders")
    assert search(life, 0) is None


def test_the_record_with_the_newest_time_is_found() -> None:
    life = life_with_times()
    partition = life.partition("orders")
    assert life.owner.call(partition.find_newest).read() == (11, 500)
    life.create("empty")
    empty = life.partition("empty")
    assert life.owner.call(empty.find_newest).read() is None


@pytest.mark.parametrize("start", range(len(TIMES)))
def test_the_newest_is_one_that_is_left_where_the_log_begins_within_a_batch(start: int) -> None:
    times = list(reversed(TIMES))
    life = KafkaLife()
    life.create("orders")
    partition = life.partition("orders")
    for at in range(0, len(times), 3):
        records = [NewRecord(time, None, b"x") for time in times[at : at + 3]]
        life.append("orders", encode_batch(records))
    life.do(lambda: partition.delete_records(start))
    latest = max(times[start:])
    expected = (times.index(latest, start), latest)
    assert life.owner.call(partition.find_newest).read() == expected
