"""Configs of topics: what scripts for Kafka set is taken, and numbers are numbers."""

from __future__ import annotations

import pytest

from headwater.core.errors import HeadwaterError
from headwater.engine.kafka.configs import TOPIC_CONFIGS, check_configs, config_number
from headwater.server.kafka.refusals import code_of
from headwater.wire.kafka.apis import ErrorCode

TAKEN = {
    "delete.retention.ms": "1",
    "file.delete.delay.ms": "0",
    "flush.messages": "1",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "*",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "0:1,1:1",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "1",
    "message.downconversion.enable": "false",
    "message.timestamp.after.max.ms": "1000",
    "message.timestamp.before.max.ms": "1000",
    "message.timestamp.difference.max.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "preallocate": "true",
    "remote.storage.enable": "false",
    "retention.bytes": "-5",
    "retention.ms": " 5 ",
    "segment.bytes": "14",
    "segment.index.bytes": "1000000",
    "segment.jitter.ms": "0",
    "segment.ms": "1",
    "unclean.leader.election.enable": "TRUE",
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_scripts_for_kafka_set_is_taken(name: str) -> None:
    assert check_configs({name: TAKEN[name]}) == {name: TAKEN[name]}


def test_a_topic_can_be_given_all_it_has() -> None:
    defaults = {name: known.default for name, known in TOPIC_CONFIGS.items()}
    assert check_configs(defaults) == defaults
    assert config_number({"retention.ms": " 5 "}, "retention.ms") == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "1_000"),
        ("retention.ms", "-2"),
        ("retention.ms", ""),
        ("retention.ms", "1e3"),
        ("retention.ms", "\u0665"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "9" * 5_000),
        ("max.message.bytes", "-1"),
        ("max.message.bytes", "2147483648"),
        ("segment.bytes", "13"),
        ("segment.index.bytes", "3"),
        ("max.compaction.lag.ms", "0"),
        ("local.retention.ms", "-3"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "0_1"),
        ("preallocate", "yes"),
        ("remote.storage.enable", "true"),
        ("leader.replication.throttled.replicas", "all"),
        ("cleanup.policy", "compact"),
        ("compression.type", "lz4"),
        ("message.timestamp.type", "LogAppendTime"),
    ],
)
def test_what_cannot_be_or_would_be_a_lie_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(HeadwaterError, match=name) as refused:
        check_configs({name: value})
    assert code_of(refused.value) == ErrorCode.INVALID_CONFIG
