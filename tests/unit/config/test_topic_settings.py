"""Settings of a topic: defaults, aliases, clamps, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.config.topic import (
    DEFAULT_TOPIC_SETTINGS,
    Discard,
    TopicType,
    changed,
    check_topic_name,
    stored_settings,
    topic_settings,
)
from headwater.core.durability import Durability
from headwater.core.errors import FormatError, InvalidRequestError, TopicExistsIncompatibleError


@pytest.mark.claims(275)
def test_nothing_given_means_the_defaults_of_the_contract() -> None:
    assert topic_settings({}).to_wire() == {
        "type": "log",
        "ttl_ms": 0,
        "cap_records": 0,
        "cap_bytes": 0,
        "discard": "old",
        "durability": "fsync",
        "durable": True,
        "priority": None,
        "auto_priority": True,
        "auto_create": True,
        "idempotency_window_ms": 120_000,
        "dedupe_node": True,
        "lease_ms": 30_000,
        "claim_jitter_ms": 0,
        "max_deliveries": 0,
        "dead_letter": None,
        "leases_durable": False,
        "fifo_key": None,
        "paused": False,
    }
    assert topic_settings({}) is DEFAULT_TOPIC_SETTINGS


@pytest.mark.claims(193, 196, 201)
@pytest.mark.parametrize(
    ("given", "durability"),
    [
        ({"durable": True}, Durability.FSYNC),
        ({"durable": False}, Durability.DISK),
        ({"durability": "memory", "durable": True}, Durability.MEMORY),
        ({"durable": False, "durability": "ephemeral"}, Durability.EPHEMERAL),
        ({"durability": Durability.DISK}, Durability.DISK),
    ],
)
def test_the_alias_counts_only_where_no_class_is_named(
    given: dict[str, Any], durability: Durability
) -> None:
    settings = topic_settings(given)
    assert settings.durability is durability
    assert settings.durable is (durability is Durability.FSYNC)


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"priority": 5_000}, "priority", 1_000),
        ({"priority": -5_000}, "priority", -1_000),
        ({"lease_ms": 1}, "lease_ms", 100),
        ({"lease_ms": 10**9}, "lease_ms", 86_400_000),
        ({"claim_jitter_ms": 9_999}, "claim_jitter_ms", 5_000),
        ({"claim_jitter_ms": -1}, "claim_jitter_ms", 0),
    ],
)
def test_what_is_out_of_range_is_clamped_where_the_contract_says_so(
    given: dict[str, Any], name: str, value: int
) -> None:
    assert getattr(topic_settings(given), name) == value


@pytest.mark.parametrize(
    "given",
    [
        {"ttl_ms": -1},
        {"ttl_ms": 2**53},
        {"ttl_ms": 1.5},
        {"ttl_ms": True},
        {"ttl_ms": "60"},
        {"cap_records": None},
        {"discard": "new"},
        {"discard": []},
        {"durability": "fast"},
        {"durable": 1},
        {"durable": None},
        {"auto_create": "yes"},
        {"priority": "high"},
        {"dead_letter": "../etc"},
        {"dead_letter": ""},
        {"dead_letter": "own"},
        {"dead_letter": "kafka:orders:0"},
        {"type": "stream"},
        {"colour": "red"},
    ],
)
def test_a_mistake_is_refused_and_the_message_names_the_setting(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        topic_settings(given, topic="own")
    name = next(iter(given))
    assert name in str(caught.value)
    assert caught.value.detail == {"setting": name}


def test_new_settings_stand_on_top_of_the_old_ones() -> None:
    old = topic_settings({"ttl_ms": 5, "cap_records": 3})
    new = topic_settings({"cap_records": 9, "discard": "reject"}, old)
    assert (new.ttl_ms, new.cap_records, new.discard) == (5, 9, Discard.REJECT)
    assert changed(old, new) == ("cap_records", "discard")
    assert changed(new, new) == ()


def test_the_type_of_a_topic_can_never_change() -> None:
    queue = topic_settings({"type": "queue"})
    with pytest.raises(TopicExistsIncompatibleError) as caught:
        changed(queue, topic_settings({"type": "log"}, queue))
    assert caught.value.code == "topic_exists_incompatible"
    assert caught.value.detail == {"reason": "type", "type": "queue", "wanted": "log"}


def test_stored_settings_come_back_the_same_object() -> None:
    settings = topic_settings({"type": "queue", "durability": "disk", "priority": 7})
    assert stored_settings(settings.to_stored()) is settings
    assert stored_settings({"type": "queue"}).type is TopicType.QUEUE


def test_a_setting_of_a_newer_version_is_refused_not_dropped() -> None:
    stored = topic_settings({}).to_stored() | {"encryption": "on"}
    with pytest.raises(FormatError, match="encryption"):
        stored_settings(stored)


@pytest.mark.parametrize("name", ["a", "A.b:c_d-1", "9", "x" * 255])
def test_a_name_of_the_pattern_may_be_a_topic(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 256, ".a", "-a", "a/b", "a>b", "a b", "ä", "a\n", 5, None]
)
def test_any_other_name_is_refused_whole(name: object) -> None:
    with pytest.raises(InvalidRequestError):
        check_topic_name(name)
