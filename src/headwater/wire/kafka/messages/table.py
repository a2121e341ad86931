"""Which message belongs to which kind of request."""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.apis import ApiKey
from headwater.wire.kafka.fields import Message
from headwater.wire.kafka.messages import cluster, data, group_offsets, groups, topics

MESSAGES: Final[dict[ApiKey, Message]] = {
    ApiKey.PRODUCE: data.PRODUCE,
    ApiKey.FETCH: data.FETCH,
    ApiKey.LIST_OFFSETS: data.LIST_OFFSETS,
    ApiKey.METADATA: cluster.METADATA,
    ApiKey.OFFSET_COMMIT: group_offsets.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH: group_offsets.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR: groups.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP: groups.JOIN_GROUP,
    ApiKey.HEARTBEAT: groups.HEARTBEAT,
    ApiKey.LEAVE_GROUP: groups.LEAVE_GROUP,
    ApiKey.SYNC_GROUP: groups.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS: groups.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS: groups.LIST_GROUPS,
    ApiKey.SASL_HANDSHAKE: cluster.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS: cluster.API_VERSIONS,
    ApiKey.CREATE_TOPICS: topics.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS: topics.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS: data.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID: data.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: data.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_CONFIGS: topics.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS: topics.ALTER_CONFIGS,
    ApiKey.SASL_AUTHENTICATE: cluster.SASL_AUTHENTICATE,
    ApiKey.CREATE_PARTITIONS: topics.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS: groups.DELETE_GROUPS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: topics.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.OFFSET_DELETE: group_offsets.OFFSET_DELETE,
    ApiKey.DESCRIBE_CLUSTER: cluster.DESCRIBE_CLUSTER,
}
