"""What the server reports over HTTP about Kafka topics and consumer groups, as structs."""

from __future__ import annotations

import msgspec

from headwater.wire.answers import Answer, Spent


class KafkaPartitionSeen(Answer):
    partition: int
    start_offset: int
    high_watermark: int
    bytes: int


class KafkaTopicSeen(Answer):
    topic: str
    topic_id: str
    config: dict[str, str]
    partitions: list[KafkaPartitionSeen]


class KafkaTopicList(Answer):
    topics: list[KafkaTopicSeen]
    performance: Spent
    next_cursor: str | msgspec.UnsetType = msgspec.UNSET


class KafkaOffsetSeen(Answer):
    topic: str
    partition: int
    offset: int
    lag: int
    """Records between what the group has committed and the end."""


class KafkaGroupSeen(Answer):
    group: str
    state: str
    members: int
    lag: int
    offsets: list[KafkaOffsetSeen]


class KafkaGroupList(Answer):
    groups: list[KafkaGroupSeen]
    performance: Spent
    next_cursor: str | msgspec.UnsetType = msgspec.UNSET
