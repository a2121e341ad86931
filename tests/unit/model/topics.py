"""Short ways to make topics in the state a test wants."""

from __future__ import annotations

from typing import Any

from headwater.config.topic import topic_settings
from headwater.model.selection import select
from headwater.model.topic import TopicLog

OVERHEAD = 38


def topic(**settings: Any) -> TopicLog:
    return TopicLog(topic_settings(settings))


def write(
    log: TopicLog, count: int = 1, *, ts: int = 0, payload: int = 10, tag: bytes | None = None
) -> int:
    """Assign and publish; gives the first seq."""
    first = log.assign(count, payload * count)
    log.publish(first, [OVERHEAD + payload] * count, ts, [0x10] * count, [tag] * count)
    return first


def seqs_from(log: TopicLog, from_seq: int = 0, limit: int = 1_000) -> list[int]:
    found: list[int] = select(log, from_seq, limit).seqs.tolist()
    return found
