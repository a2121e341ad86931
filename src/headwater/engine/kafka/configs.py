"""Configs of topics: which there are, what they may be, what they are unless said otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from headwater.core.units import GIB
from headwater.engine.kafka.errors import KafkaError
from headwater.wire.kafka.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class TopicConfig:
    default: str
    allowed: Callable[[str], bool]
    meaning: str


def _integer(low: int, high: int = 2**63 - 1) -> Callable[[str], bool]:
    def allowed(value: str) -> bool:
        try:
            return low <= int(value) <= high
        except ValueError:
            return False

    return allowed


def _only(*values: str) -> Callable[[str], bool]:
    return lambda value: value in values


RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"

TOPIC_CONFIGS: Final[dict[str, TopicConfig]] = {
    RETENTION_MS: TopicConfig("-1", _integer(-1), "records older than this go; -1 keeps them"),
    RETENTION_BYTES: TopicConfig("-1", _integer(-1), "bytes of one partition; -1 is any number"),
    MAX_MESSAGE_BYTES: TopicConfig(str(64 * 2**20), _integer(0), "largest record batch"),
    "cleanup.policy": TopicConfig("delete", _only("delete"), "there is no compaction"),
    "compression.type": TopicConfig("producer", _only("producer"), "batches stay as they came"),
    "message.timestamp.type": TopicConfig("CreateTime", _only("CreateTime"), "the producer's"),
    "min.insync.replicas": TopicConfig("1", _only("1"), "there is one copy"),
    "segment.bytes": TopicConfig(str(GIB), _integer(1), "one log is shared: taken, and not used"),
    "segment.ms": TopicConfig("604800000", _integer(1), "taken, and not used"),
    "delete.retention.ms": TopicConfig("86400000", _integer(0), "taken, and not used"),
    "file.delete.delay.ms": TopicConfig("60000", _integer(0), "taken, and not used"),
    "flush.messages": TopicConfig(str(2**63 - 1), _integer(1), "taken: acks say what is synced"),
    "flush.ms": TopicConfig(str(2**63 - 1), _integer(0), "taken: acks say what is synced"),
    "unclean.leader.election.enable": TopicConfig(
        "false", _only("true", "false"), "there is one copy"
    ),
}


def check_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """The same configs, or INVALID_CONFIG with the one that cannot be."""
    for name, value in configs.items():
        known = TOPIC_CONFIGS.get(name)
        if known is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no topic config {name!r}")
        if not known.allowed(value):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} cannot be {value!r}")
    return dict(configs)


def config_number(configs: Mapping[str, str], name: str) -> int:
    return int(configs.get(name, TOPIC_CONFIGS[name].default))
