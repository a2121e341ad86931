"""Configs of topics: names, allowed values and defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from headwater.core.units import GIB, MIB
from headwater.engine.kafka.errors import ConfigError

Allowed = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    default: str
    allowed: Allowed
    meaning: str


_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_REPLICAS: Final = re.compile(r"|\*|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*")
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


def _integer(low: int, high: int = _LONG_MAX) -> Allowed:
    """As Kafka reads them: blanks around are nothing, and nothing else than digits is a number."""

    def allowed(value: str) -> bool:
        return _WHOLE.fullmatch(value.strip()) is not None and low <= int(value) <= high

    return allowed


def _share(value: str) -> bool:
    return _DECIMAL.fullmatch(value.strip()) is not None and 0 <= float(value) <= 1


def _boolean(value: str) -> bool:
    return value.strip().lower() in ("true", "false")


def _replicas(value: str) -> bool:
    return _REPLICAS.fullmatch(value) is not None


def _only(*values: str) -> Allowed:
    return lambda value: value in values


def _unused(default: int | str, allowed: Allowed, why: str = "taken, and not used") -> TopicConfig:
    """What changes nothing here, and is in the scripts that people have."""
    return TopicConfig(str(default), allowed, why)


RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"

_SYNCED: Final = "taken: acks say what is synced"
_SHARED: Final = "one log is shared: taken, and not used"
_ANY_TIME: Final = "taken, and not used: records of any time are stored"
_NO_COMPACTION: Final = "taken: there is no compaction"
_LOCAL: Final = "taken: everything is here"
_ONE_COPY: Final = "there is one copy"

TOPIC_CONFIGS: Final[dict[str, TopicConfig]] = {
    RETENTION_MS: TopicConfig("-1", _integer(-1), "records older than this go; -1 keeps them"),
    RETENTION_BYTES: TopicConfig("-1", _integer(-(2**63)), "of one partition; -1 is any number"),
    MAX_MESSAGE_BYTES: TopicConfig(str(64 * MIB), _integer(0, _INT_MAX), "largest record batch"),
    "cleanup.policy": TopicConfig("delete", _only("delete"), "there is no compaction"),
    "compression.type": TopicConfig("producer", _only("producer"), "batches stay as they came"),
    "message.timestamp.type": TopicConfig("CreateTime", _only("CreateTime"), "the producer's"),
    "min.insync.replicas": TopicConfig("1", _only("1"), _ONE_COPY),
    "remote.storage.enable": TopicConfig("false", _only("false"), "everything is here"),
    "segment.bytes": _unused(GIB, _integer(14, _INT_MAX), _SHARED),
    "segment.ms": _unused(604_800_000, _integer(1)),
    "segment.jitter.ms": _unused(0, _integer(0)),
    "segment.index.bytes": _unused(10 * MIB, _integer(4, _INT_MAX)),
    "index.interval.bytes": _unused(4096, _integer(0, _INT_MAX)),
    "preallocate": _unused("false", _boolean),
    "file.delete.delay.ms": _unused(60_000, _integer(0)),
    "flush.messages": _unused(_LONG_MAX, _integer(1), _SYNCED),
    "flush.ms": _unused(_LONG_MAX, _integer(0), _SYNCED),
    "delete.retention.ms": _unused(86_400_000, _integer(0), _NO_COMPACTION),
    "min.cleanable.dirty.ratio": _unused("0.5", _share, _NO_COMPACTION),
    "min.compaction.lag.ms": _unused(0, _integer(0), _NO_COMPACTION),
    "max.compaction.lag.ms": _unused(_LONG_MAX, _integer(1), _NO_COMPACTION),
    "message.timestamp.difference.max.ms": _unused(_LONG_MAX, _integer(0), _ANY_TIME),
    "message.timestamp.before.max.ms": _unused(_LONG_MAX, _integer(0), _ANY_TIME),
    "message.timestamp.after.max.ms": _unused(_LONG_MAX, _integer(0), _ANY_TIME),
    "message.downconversion.enable": _unused("true", _boolean),
    "local.retention.ms": _unused(-2, _integer(-2), _LOCAL),
    "local.retention.bytes": _unused(-2, _integer(-2), _LOCAL),
    "leader.replication.throttled.replicas": _unused("", _replicas, _ONE_COPY),
    "follower.replication.throttled.replicas": _unused("", _replicas, _ONE_COPY),
    "unclean.leader.election.enable": _unused("false", _boolean, _ONE_COPY),
}
"""Those of Kafka 3.9, but for levels of compression, old formats, and its other tier."""


def known_config(name: str) -> TopicConfig:
    known = TOPIC_CONFIGS.get(name)
    if known is None:
        raise ConfigError(f"topics have no config {name!r} here")
    return known


def check_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """The same configs, or INVALID_CONFIG with the one that cannot be."""
    for name, value in configs.items():
        known = known_config(name)
        if not known.allowed(value):
            raise ConfigError(f"{name} cannot be {value!r} here: {known.meaning}")
    return dict(configs)


def config_number(configs: Mapping[str, str], name: str) -> int:
    return int(configs.get(name, TOPIC_CONFIGS[name].default))
