"""The fields of each request and response, under Kafka's own names and in its order.

A line is a field: its name and type; then the versions it is in, those in which it may be `null`
and its `tag`, where these are not "all", "none" and "none"; and behind `=` the value it has where
none is given. The fields of a `row`, or of each of any number of `rows`, are indented below it.
"""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.apis import ApiKey
from headwater.wire.kafka.fields import MessageSchema, read_schemas

_SCHEMAS: Final = """
PRODUCE flexible 9+
  request
    transactional_id string 3+ null 3+
    acks int16
    timeout_ms int32
    topic_data rows
      name string
      partition_data rows
        index int32
        records records null 0+
  response
    responses rows
      name string
      partition_responses rows
        index int32
        error_code int16
        base_offset int64
        log_append_time_ms int64 2+ = -1
        log_start_offset int64 5+ = -1
        record_errors rows 8+
          batch_index int32
          batch_index_error_message string null 8+
        error_message string 8+ null 8+
    throttle_time_ms int32 1+

FETCH flexible 12+
  request
    cluster_id string 12+ null 12+ tag 0
    replica_id int32 = -1
    max_wait_ms int32
    min_bytes int32
    max_bytes int32 3+ = 2147483647
    isolation_level int8 4+
    session_id int32 7+
    session_epoch int32 7+ = -1
    topics rows
      topic string
      partitions rows
        partition int32
        current_leader_epoch int32 9+ = -1
        fetch_offset int64
        last_fetched_epoch int32 12+ = -1
        log_start_offset int64 5+ = -1
        partition_max_bytes int32
    forgotten_topics_data rows 7+
      topic string
      partitions int32[]
    rack_id string 11+
  response
    throttle_time_ms int32 1+
    error_code int16 7+
    session_id int32 7+
    responses rows
      topic string
      partitions rows
        partition_index int32
        error_code int16
        high_watermark int64
        last_stable_offset int64 4+ = -1
        log_start_offset int64 5+ = -1
        diverging_epoch row 12+ tag 0
          epoch int32 = -1
          end_offset int64 = -1
        current_leader row 12+ tag 1
          leader_id int32 = -1
          leader_epoch int32 = -1
        snapshot_id row 12+ tag 2
          end_offset int64 = -1
          epoch int32 = -1
        aborted_transactions rows 4+ null 4+
          producer_id int64
          first_offset int64
        preferred_read_replica int32 11+ = -1
        records records null 0+

LIST_OFFSETS flexible 6+
  request
    replica_id int32 = -1
    isolation_level int8 2+
    topics rows
      name string
      partitions rows
        partition_index int32
        current_leader_epoch int32 4+ = -1
        timestamp int64
  response
    throttle_time_ms int32 2+
    topics rows
      name string
      partitions rows
        partition_index int32
        error_code int16
        timestamp int64 = -1
        offset int64 = -1
        leader_epoch int32 4+ = -1

METADATA flexible 9+
  request
    topics rows null 1+
      topic_id uuid 10+
      name string null 10+ = ""
    allow_auto_topic_creation bool 4+ = true
    include_cluster_authorized_operations bool 8-10
    include_topic_authorized_operations bool 8+
  response
    throttle_time_ms int32 3+
    brokers rows
      node_id int32
      host string
      port int32
      rack string 1+ null 1+
    cluster_id string 2+ null 2+
    controller_id int32 1+ = -1
    topics rows
      error_code int16
      name string null 12+ = ""
      topic_id uuid 10+
      is_internal bool 1+
      partitions rows
        error_code int16
        partition_index int32
        leader_id int32
        leader_epoch int32 7+ = -1
        replica_nodes int32[]
        isr_nodes int32[]
        offline_replicas int32[] 5+
      topic_authorized_operations int32 8+ = not_requested
    cluster_authorized_operations int32 8-10 = not_requested

OFFSET_COMMIT flexible 8+
  request
    group_id string
    generation_id_or_member_epoch int32 1+ = -1
    member_id string 1+
    group_instance_id string 7+ null 7+
    retention_time_ms int64 2-4 = -1
    topics rows
      name string
      partitions rows
        partition_index int32
        committed_offset int64
        committed_leader_epoch int32 6+ = -1
        committed_metadata string null 0+
  response
    throttle_time_ms int32 3+
    topics rows
      name string
      partitions rows
        partition_index int32
        error_code int16

OFFSET_FETCH flexible 6+
  request
    group_id string 0-7
    topics rows 0-7 null 2-7
      name string
      partition_indexes int32[]
    groups rows 8+
      group_id string
      member_id string 9+ null 9+
      member_epoch int32 9+ = -1
      topics rows null 8+
        name string
        partition_indexes int32[]
    require_stable bool 7+
  response
    throttle_time_ms int32 3+
    topics rows 0-7
      name string
      partitions rows
        partition_index int32
        committed_offset int64
        committed_leader_epoch int32 5+ = -1
        metadata string null 0+
        error_code int16
    error_code int16 2-7
    groups rows 8+
      group_id string
      topics rows
        name string
        partitions rows
          partition_index int32
          committed_offset int64
          committed_leader_epoch int32 5+ = -1
          metadata string null 0+
          error_code int16
      error_code int16

FIND_COORDINATOR flexible 3+
  request
    key string 0-3
    key_type int8 1+
    coordinator_keys string[] 4+
  response
    throttle_time_ms int32 1+
    error_code int16 0-3
    error_message string 1-3 null 1-3
    node_id int32 0-3
    host string 0-3
    port int32 0-3
    coordinators rows 4+
      key string
      node_id int32
      host string
      port int32
      error_code int16
      error_message string null 4+

JOIN_GROUP flexible 6+
  request
    group_id string
    session_timeout_ms int32
    rebalance_timeout_ms int32 1+ = -1
    member_id string
    group_instance_id string 5+ null 5+
    protocol_type string
    protocols rows
      name string
      metadata bytes
    reason string 8+ null 8+
  response
    throttle_time_ms int32 2+
    error_code int16
    generation_id int32 = -1
    protocol_type string 7+ null 7+
    protocol_name string null 7+ = ""
    leader string
    skip_assignment bool 9+
    member_id string
    members rows
      member_id string
      group_instance_id string 5+ null 5+
      metadata bytes

HEARTBEAT flexible 4+
  request
    group_id string
    generation_id int32
    member_id string
    group_instance_id string 3+ null 3+
  response
    throttle_time_ms int32 1+
    error_code int16

LEAVE_GROUP flexible 4+
  request
    group_id string
    member_id string 0-2
    members rows 3+
      member_id string
      group_instance_id string null 3+
      reason string 5+ null 5+
  response
    throttle_time_ms int32 1+
    error_code int16
    members rows 3+
      member_id string
      group_instance_id string null 3+
      error_code int16

SYNC_GROUP flexible 4+
  request
    group_id string
    generation_id int32
    member_id string
    group_instance_id string 3+ null 3+
    protocol_type string 5+ null 5+
    protocol_name string 5+ null 5+
    assignments rows
      member_id string
      assignment bytes
  response
    throttle_time_ms int32 1+
    error_code int16
    protocol_type string 5+ null 5+
    protocol_name string 5+ null 5+
    assignment bytes

DESCRIBE_GROUPS flexible 5+
  request
    groups string[]
    include_authorized_operations bool 3+
  response
    throttle_time_ms int32 1+
    groups rows
      error_code int16
      error_message string 6+ null 6+
      group_id string
      group_state string
      protocol_type string
      protocol_data string
      members rows
        member_id string
        group_instance_id string 4+ null 4+
        client_id string
        client_host string
        member_metadata bytes
        member_assignment bytes
      authorized_operations int32 3+ = not_requested

LIST_GROUPS flexible 3+
  request
    states_filter string[] 4+
    types_filter string[] 5+
  response
    throttle_time_ms int32 1+
    error_code int16
    groups rows
      group_id string
      protocol_type string
      group_state string 4+
      group_type string 5+

SASL_HANDSHAKE
  request
    mechanism string
  response
    error_code int16
    mechanisms string[]

API_VERSIONS flexible 3+
  request
    client_software_name string 3+
    client_software_version string 3+
  response
    error_code int16
    api_keys rows
      api_key int16
      min_version int16
      max_version int16
    throttle_time_ms int32 1+
    supported_features rows 3+ tag 0
      name string
      min_version int16
      max_version int16
    finalized_features_epoch int64 3+ tag 1 = -1
    finalized_features rows 3+ tag 2
      name string
      max_version_level int16
      min_version_level int16
    zk_migration_ready bool 3+ tag 3

CREATE_TOPICS flexible 5+
  request
    topics rows
      name string
      num_partitions int32
      replication_factor int16
      assignments rows
        partition_index int32
        broker_ids int32[]
      configs rows
        name string
        value string null 0+
    timeout_ms int32 = 60000
    validate_only bool 1+
  response
    throttle_time_ms int32 2+
    topics rows
      name string
      topic_id uuid 7+
      error_code int16
      error_message string 1+ null 0+
      topic_config_error_code int16 5+ tag 0
      num_partitions int32 5+ = -1
      replication_factor int16 5+ = -1
      configs rows 5+ null 5+
        name string
        value string null 0+
        read_only bool
        config_source int8 = -1
        is_sensitive bool

DELETE_TOPICS flexible 4+
  request
    topics rows 6+
      name string null 6+
      topic_id uuid
    topic_names string[] 0-5
    timeout_ms int32
  response
    throttle_time_ms int32 1+
    responses rows
      name string null 6+ = ""
      topic_id uuid 6+
      error_code int16
      error_message string 5+ null 5+

DELETE_RECORDS flexible 2+
  request
    topics rows
      name string
      partitions rows
        partition_index int32
        offset int64
    timeout_ms int32
  response
    throttle_time_ms int32
    topics rows
      name string
      partitions rows
        partition_index int32
        low_watermark int64
        error_code int16

INIT_PRODUCER_ID flexible 2+
  request
    transactional_id string null 0+
    transaction_timeout_ms int32
    producer_id int64 3+ = -1
    producer_epoch int16 3+ = -1
  response
    throttle_time_ms int32
    error_code int16
    producer_id int64 = -1
    producer_epoch int16

OFFSET_FOR_LEADER_EPOCH flexible 4+
  request
    replica_id int32 3+ = -2
    topics rows
      topic string
      partitions rows
        partition int32
        current_leader_epoch int32 2+ = -1
        leader_epoch int32
  response
    throttle_time_ms int32 2+
    topics rows
      topic string
      partitions rows
        error_code int16
        partition int32
        leader_epoch int32 1+ = -1
        end_offset int64 = -1

DESCRIBE_CONFIGS flexible 4+
  request
    resources rows
      resource_type int8
      resource_name string
      configuration_keys string[] null 0+
    include_synonyms bool 1+
    include_documentation bool 3+
  response
    throttle_time_ms int32
    results rows
      error_code int16
      error_message string null 0+
      resource_type int8
      resource_name string
      configs rows
        name string
        value string null 0+
        read_only bool
        is_default bool 0-0
        config_source int8 1+ = -1
        is_sensitive bool
        synonyms rows 1+
          name string
          value string null 0+
          source int8
        config_type int8 3+
        documentation string 3+ null 0+

ALTER_CONFIGS flexible 2+
  request
    resources rows
      resource_type int8
      resource_name string
      configs rows
        name string
        value string null 0+
    validate_only bool
  response
    throttle_time_ms int32
    responses rows
      error_code int16
      error_message string null 0+
      resource_type int8
      resource_name string

SASL_AUTHENTICATE flexible 2+
  request
    auth_bytes bytes
  response
    error_code int16
    error_message string null 0+
    auth_bytes bytes
    session_lifetime_ms int64 1+

CREATE_PARTITIONS flexible 2+
  request
    topics rows
      name string
      count int32
      assignments rows null 0+
        broker_ids int32[]
    timeout_ms int32
    validate_only bool
  response
    throttle_time_ms int32
    results rows
      name string
      error_code int16
      error_message string null 0+

DELETE_GROUPS flexible 2+
  request
    groups_names string[]
  response
    throttle_time_ms int32
    results rows
      group_id string
      error_code int16

INCREMENTAL_ALTER_CONFIGS flexible 1+
  request
    resources rows
      resource_type int8
      resource_name string
      configs rows
        name string
        config_operation int8
        value string null 0+
    validate_only bool
  response
    throttle_time_ms int32
    responses rows
      error_code int16
      error_message string null 0+
      resource_type int8
      resource_name string

OFFSET_DELETE
  request
    group_id string
    topics rows
      name string
      partitions rows
        partition_index int32
  response
    error_code int16
    throttle_time_ms int32
    topics rows
      name string
      partitions rows
        partition_index int32
        error_code int16

DESCRIBE_CLUSTER flexible 0+
  request
    include_cluster_authorized_operations bool
    endpoint_type int8 1+ = 1
    include_fenced_brokers bool 2+
  response
    throttle_time_ms int32
    error_code int16
    error_message string null 0+
    endpoint_type int8 1+ = 1
    cluster_id string
    controller_id int32 = -1
    brokers rows
      broker_id int32
      host string
      port int32
      rack string null 0+
      is_fenced bool 2+
    cluster_authorized_operations int32 = not_requested
"""

MESSAGES: Final[dict[ApiKey, MessageSchema]] = {
    ApiKey[name]: schema for name, schema in read_schemas(_SCHEMAS).items()
}
