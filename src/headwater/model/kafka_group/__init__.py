"""The rules of Kafka's consumer groups, pure: no clock, no sockets, no disk."""

from headwater.model.kafka_group.group import ConsumerGroup
from headwater.model.kafka_group.member import (
    Joined,
    JoinRequest,
    Member,
    MemberInfo,
    Outcome,
    Phase,
    Refusal,
    Refused,
    SyncedMember,
)
