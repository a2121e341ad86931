"""Topics of the Kafka store: made, dropped, widened, and never seen by others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from headwater.core.errors import HeadwaterError, TopicNotFoundError
from headwater.engine.kafka.errors import TopicExistsError
from headwater.format.kafka.entry import topic_hash
from headwater.server.kafka.refusals import code_of
from headwater.testing import FakeDisk
from headwater.wire.kafka.apis import ErrorCode
from tests.rig.kafka import SMALL_KAFKA, KafkaLife, batch_of


def restarts(life: KafkaLife) -> list[KafkaLife]:
    """The same store after a kill and after a clean stop."""
    assert isinstance(life.disk, FakeDisk)
    killed = KafkaLife(life.disk.after_kill(), life.settings, life.clock)
    return [life, killed, life.reopen()]


@pytest.mark.claims(17, 24, 31)
def test_organisations_have_topics_of_the_same_name_apart() -> None:
    life = KafkaLife()
    for org in (1, 2):
        life.create("orders", org=org)
    life.append("orders", batch_of("a", "b"), org=1)
    assert life.append("orders", batch_of("c"), org=2).base_offset == 0
    for each in restarts(life):
        assert each.values("orders", org=1) == [b"a", b"b"]
        assert each.values("orders", org=2) == [b"c"]
        assert each.store.topic(3, "orders") is None
    one, two = life.partition("orders", org=1), life.partition("orders", org=2)
    assert topic_hash(1, "orders") != topic_hash(2, "orders")
    decimal = int.from_bytes(topic_hash(2, "orders"), "little")
    assert two.key_text == f"2-{decimal}-0"
    assert one.key_text.startswith("1-")


def test_a_topic_made_again_has_nothing_of_the_one_before() -> None:
    life = KafkaLife()
    life.create("orders")
    life.append("orders", batch_of("old", "older"))
    old = life.store.topic(1, "orders")
    assert old is not None
    life.do(old.drop)
    assert life.store.topic(1, "orders") is None
    with pytest.raises(TopicNotFoundError, match="gone"):
        old.partitions[0].append(batch_of("late"), None)  # type: ignore[arg-type]
    life.create("orders")
    life.append("orders", batch_of("new"))
    for each in restarts(life):
        assert each.values("orders") == [b"new"]
        topic = each.store.topic(1, "orders")
        assert topic is not None
        assert topic.topic_id != old.topic_id


def test_partitions_and_configs_survive_restarts() -> None:
    life = KafkaLife()
    life.create("orders", 2, retention_ms="5000")
    topic = life.store.topic(1, "orders")
    assert topic is not None
    life.do(lambda: topic.grow(5))
    life.append("orders", batch_of("far"), 4)
    life.do(lambda: topic.alter({"retention.bytes": "77"}))
    for each in restarts(life):
        found = each.store.topic(1, "orders")
        assert found is not None
        assert len(found.partitions) == 5
        assert found.configs == {"retention.bytes": "77"}
        assert each.values("orders", 4) == [b"far"]


@pytest.mark.parametrize(
    ("name", "partitions", "configs", "code"),
    [
        ("", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a/b", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 250, 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("there", 1, {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("new", 0, {}, ErrorCode.INVALID_PARTITIONS),
        ("new", 10_001, {}, ErrorCode.INVALID_PARTITIONS),
        ("new", 1, {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ("new", 1, {"no.such": "1"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    name: str, partitions: int, configs: dict[str, str], code: ErrorCode
) -> None:
    life = KafkaLife()
    life.create("there")
    with pytest.raises(HeadwaterError) as refused:
        life.store.create_topic(1, name, partitions, configs)
    assert code_of(refused.value) == code


def test_all_topics_together_have_no_more_partitions_than_they_may() -> None:
    life = KafkaLife(settings=replace(SMALL_KAFKA, partitions_total_max=10))
    life.create("orders", 4)
    orders = life.store.topic(1, "orders")
    assert orders is not None

    def refused(work: Callable[[], object]) -> None:
        with pytest.raises(HeadwaterError, match="limit_kafka_partitions") as told:
            work()
        assert code_of(told.value) == ErrorCode.POLICY_VIOLATION

    def at_once() -> None:
        """What is on its way counts."""
        refused(lambda: life.store.create_topic(2, "users", 7))
        life.store.create_topic(2, "users", 4)
        refused(lambda: orders.grow(7))
        orders.grow(6)
        refused(lambda: life.store.create_topic(1, "more", 1))

    life.owner.call(at_once)
    refused(lambda: life.store.create_topic(1, "more", 1))
    users = life.store.topic(2, "users")
    assert users is not None
    life.do(users.drop)
    life.create("more", 4)
    again = life.reopen()
    refused(lambda: again.store.create_topic(1, "another", 1))


def test_two_who_make_one_topic_at_once_get_one_refusal() -> None:
    life = KafkaLife()

    def both() -> None:
        life.store.create_topic(1, "orders", 1)
        with pytest.raises(TopicExistsError):
            life.store.create_topic(1, "orders", 1)

    life.owner.call(both)
    assert life.store.topic(1, "orders") is not None


def test_a_batch_over_the_limit_of_its_topic_is_refused() -> None:
    life = KafkaLife()
    life.create("orders", max_message_bytes="100")
    life.append("orders", batch_of("small"))
    with pytest.raises(HeadwaterError) as refused:
        life.append("orders", batch_of("x" * 100))
    assert code_of(refused.value) == ErrorCode.MESSAGE_TOO_LARGE
    assert life.values("orders") == [b"small"]
