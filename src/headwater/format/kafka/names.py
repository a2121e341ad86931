"""Names of the files in `kafka/`, without padding (`n.log`, `n.oidx`), and of partitions."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from headwater.core.limits import PARTITION_NAME_PATTERN, PARTITION_PREFIX

KAFKA_DIRECTORY: Final = "kafka"
CHECKPOINT_NAME: Final = "checkpoint"
COPY_NAME: Final = "checkpoint.copy"
"""The checkpoint once more, written after it and before anything is removed."""
SPARE_NAME: Final = "checkpoint.spare"
"""Room that is put aside for the next checkpoint."""
REWRITE_SUFFIX: Final = ".new"
"""An index made by a rewrite, before it takes the place of the old one."""

_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.(log|oidx)")


class KafkaFile(Enum):
    LOG = "log"
    INDEX = "oidx"


def log_name(number: int) -> str:
    return f"{number}.log"


def index_name(number: int) -> str:
    return f"{number}.oidx"


def parse_name(name: str) -> tuple[int, KafkaFile] | None:
    """The segment's number and which of its files this is; None for any other name."""
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), KafkaFile(match[2]))


def partition_name(topic: str, partition: int) -> str:
    return f"{PARTITION_PREFIX}{topic}:{partition}"


def parse_partition_name(name: str) -> tuple[str, int] | None:
    """Topic and partition of a name; None when it is not one of a partition."""
    if PARTITION_NAME_PATTERN.fullmatch(name) is None:
        return None
    topic, _, number = name[len(PARTITION_PREFIX) :].rpartition(":")
    return (topic, int(number)) if str(int(number)) == number else None
