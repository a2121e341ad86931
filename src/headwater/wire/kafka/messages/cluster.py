"""Messages about the server itself: versions, topics there are, signing in."""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.fields import FieldType, Message, many, one

NOT_REQUESTED: Final = -(2**31)
"""Stands for "authorised operations were not requested"."""

API_VERSIONS: Final = Message(
    flexible_since=3,
    request=(
        one("client_software_name", FieldType.STRING, 3),
        one("client_software_version", FieldType.STRING, 3),
    ),
    response=(
        one("error_code", FieldType.INT16),
        many(
            "api_keys",
            (
                one("api_key", FieldType.INT16),
                one("min_version", FieldType.INT16),
                one("max_version", FieldType.INT16),
            ),
        ),
        one("throttle_time_ms", FieldType.INT32, 1),
        many(
            "supported_features",
            (
                one("name", FieldType.STRING),
                one("min_version", FieldType.INT16),
                one("max_version", FieldType.INT16),
            ),
            3,
            tag=0,
        ),
        one("finalized_features_epoch", FieldType.INT64, 3, default=-1, tag=1),
        many(
            "finalized_features",
            (
                one("name", FieldType.STRING),
                one("max_version_level", FieldType.INT16),
                one("min_version_level", FieldType.INT16),
            ),
            3,
            tag=2,
        ),
        one("zk_migration_ready", FieldType.BOOL, 3, tag=3),
    ),
)

METADATA: Final = Message(
    flexible_since=9,
    request=(
        many(
            "topics",
            (
                one("topic_id", FieldType.UUID, 10),
                one("name", FieldType.STRING, null=10, default=""),
            ),
            null=1,
        ),
        one("allow_auto_topic_creation", FieldType.BOOL, 4, default=True),
        one("include_cluster_authorized_operations", FieldType.BOOL, 8, 10),
        one("include_topic_authorized_operations", FieldType.BOOL, 8),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 3),
        many(
            "brokers",
            (
                one("node_id", FieldType.INT32),
                one("host", FieldType.STRING),
                one("port", FieldType.INT32),
                one("rack", FieldType.STRING, 1, null=1),
            ),
        ),
        one("cluster_id", FieldType.STRING, 2, null=2),
        one("controller_id", FieldType.INT32, 1, default=-1),
        many(
            "topics",
            (
                one("error_code", FieldType.INT16),
                one("name", FieldType.STRING, null=12, default=""),
                one("topic_id", FieldType.UUID, 10),
                one("is_internal", FieldType.BOOL, 1),
                many(
                    "partitions",
                    (
                        one("error_code", FieldType.INT16),
                        one("partition_index", FieldType.INT32),
                        one("leader_id", FieldType.INT32),
                        one("leader_epoch", FieldType.INT32, 7, default=-1),
                        many("replica_nodes", FieldType.INT32),
                        many("isr_nodes", FieldType.INT32),
                        many("offline_replicas", FieldType.INT32, 5),
                    ),
                ),
                one("topic_authorized_operations", FieldType.INT32, 8, default=NOT_REQUESTED),
            ),
        ),
        one("cluster_authorized_operations", FieldType.INT32, 8, 10, default=NOT_REQUESTED),
    ),
)

DESCRIBE_CLUSTER: Final = Message(
    flexible_since=0,
    request=(
        one("include_cluster_authorized_operations", FieldType.BOOL),
        one("endpoint_type", FieldType.INT8, 1, default=1),
        one("include_fenced_brokers", FieldType.BOOL, 2),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32),
        one("error_code", FieldType.INT16),
        one("error_message", FieldType.STRING, null=0),
        one("endpoint_type", FieldType.INT8, 1, default=1),
        one("cluster_id", FieldType.STRING),
        one("controller_id", FieldType.INT32, default=-1),
        many(
            "brokers",
            (
                one("broker_id", FieldType.INT32),
                one("host", FieldType.STRING),
                one("port", FieldType.INT32),
                one("rack", FieldType.STRING, null=0),
                one("is_fenced", FieldType.BOOL, 2),
            ),
        ),
        one("cluster_authorized_operations", FieldType.INT32, default=NOT_REQUESTED),
    ),
)

SASL_HANDSHAKE: Final = Message(
    request=(one("mechanism", FieldType.STRING),),
    response=(one("error_code", FieldType.INT16), many("mechanisms", FieldType.STRING)),
)

SASL_AUTHENTICATE: Final = Message(
    flexible_since=2,
    request=(one("auth_bytes", FieldType.BYTES),),
    response=(
        one("error_code", FieldType.INT16),
        one("error_message", FieldType.STRING, null=0),
        one("auth_bytes", FieldType.BYTES),
        one("session_lifetime_ms", FieldType.INT64, 1),
    ),
)
