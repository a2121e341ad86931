"""The Kafka store: offsets, fetches, restarts."""

from __future__ import annotations

import pytest

from headwater.core.errors import HeadwaterError
from headwater.format.kafka.batch import read_header
from headwater.server.kafka.refusals import code_of
from headwater.testing import FakeDisk
from headwater.wire.kafka.apis import ErrorCode
from tests.rig.kafka import LARGE_KAFKA, SMALL_KAFKA, KafkaLife, batch_of


def fill(life: KafkaLife, batches: int = 12) -> dict[tuple[str, int], list[bytes]]:
    """Batches of one to three records, two topics in turns."""
    expected: dict[tuple[str, int], list[bytes]] = {}
    for number in range(batches):
        name, index = (("orders", 0), ("orders", 1), ("clicks", 0))[number % 3]
        values = [f"{name}-{index}-{number}-{at}" for at in range(number % 3 + 1)]
        before = life.partition(name, index).high_watermark
        answer = life.append(name, batch_of(*values), index)
        assert answer.base_offset == before
        expected.setdefault((name, index), []).extend(value.encode() for value in values)
    return expected


def two_topics(settings: object = SMALL_KAFKA) -> KafkaLife:
    life = KafkaLife(settings=settings)  # type: ignore[arg-type]
    life.create("orders", 2)
    life.create("clicks")
    return life


def check(life: KafkaLife, expected: dict[tuple[str, int], list[bytes]]) -> None:
    for (name, index), values in expected.items():
        assert life.values(name, index) == values
        assert life.partition(name, index).high_watermark == len(values)


@pytest.mark.claims(1, 25, 26, 27, 28, 29, 30)
@pytest.mark.parametrize("settings", [SMALL_KAFKA, LARGE_KAFKA], ids=["small", "large"])
def test_offsets_are_dense_in_every_partition_whatever_is_between(settings: object) -> None:
    life = two_topics(settings)
    check(life, fill(life))


@pytest.mark.claims(1, 2, 42, 43, 44)
@pytest.mark.parametrize("settings", [SMALL_KAFKA, LARGE_KAFKA], ids=["small", "large"])
def test_everything_is_the_same_after_a_restart(settings: object) -> None:
    life = two_topics(settings)
    expected = fill(life)
    before = {key: life.fetch(key[0], 0, index=key[1]) for key in expected}
    for _ in range(3):
        life = life.reopen()
        check(life, expected)
        for (name, index), batches in before.items():
            found = life.fetch(name, 0, index=index)
            assert found == batches[: len(found)]


def test_everything_is_the_same_after_a_kill() -> None:
    life = two_topics()
    expected = fill(life, 30)
    assert isinstance(life.disk, FakeDisk)
    check(KafkaLife(life.disk.after_kill(), life.settings), expected)


def test_a_fetch_may_begin_inside_a_batch() -> None:
    for settings in (SMALL_KAFKA, LARGE_KAFKA):
        life = KafkaLife(settings=settings)
        life.create("orders")
        for number in range(10):
            life.append("orders", batch_of(*(f"{number}-{at}" for at in range(5))))
        for offset in range(50):
            first = life.fetch("orders", offset, 1)
            assert len(first) == 1
            assert read_header(first[0]).base_offset == offset - offset % 5


def test_an_offset_outside_of_the_log_is_refused() -> None:
    life = KafkaLife()
    life.create("orders")
    life.append("orders", batch_of("a"))
    assert life.fetch("orders", 1) == []
    for offset in (-1, 2):
        with pytest.raises(HeadwaterError) as refused:
            life.fetch("orders", offset)
        assert code_of(refused.value) == ErrorCode.OFFSET_OUT_OF_RANGE
