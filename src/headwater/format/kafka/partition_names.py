"""What a partition of a Kafka topic is called where topics are named."""

from __future__ import annotations

from headwater.core.limits import PARTITION_NAME_PATTERN, PARTITION_PREFIX


def partition_name(topic: str, partition: int) -> str:
    return f"{PARTITION_PREFIX}{topic}:{partition}"


def parse_partition_name(name: str) -> tuple[str, int] | None:
    """Topic and partition of a name; None when it is not one of a partition."""
    if PARTITION_NAME_PATTERN.fullmatch(name) is None:
        return None
    topic, _, number = name[len(PARTITION_PREFIX) :].rpartition(":")
    return (topic, int(number)) if str(int(number)) == number else None
