"""What a partition of a Kafka topic is called where topics are named."""

from __future__ import annotations

from headwater.core.limits import PARTITION_PREFIX


def partition_name(topic: str, partition: int) -> str:
    return f"{PARTITION_PREFIX}{topic}:{partition}"


def parse_partition_name(name: str) -> tuple[str, int] | None:
    """Topic and partition of a name; None when it is not one of a partition."""
    if not name.startswith(PARTITION_PREFIX):
        return None
    topic, _, number = name[len(PARTITION_PREFIX) :].rpartition(":")
    if not topic or not number.isascii() or not number.isdigit() or str(int(number)) != number:
        return None
    return topic, int(number)
