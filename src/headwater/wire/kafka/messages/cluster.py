"""Messages about the server itself: versions, topics there are, signing in."""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.fields import Kind, Message, many, one

NOT_ASKED: Final = -(2**31)
"""Stands for "authorised operations were not asked for"."""

API_VERSIONS: Final = Message(
    flexible_since=3,
    request=(
        one("client_software_name", Kind.STRING, 3),
        one("client_software_version", Kind.STRING, 3),
    ),
    response=(
        one("error_code", Kind.INT16),
        many(
            "api_keys",
            (
                one("api_key", Kind.INT16),
                one("min_version", Kind.INT16),
                one("max_version", Kind.INT16),
            ),
        ),
        one("throttle_time_ms", Kind.INT32, 1),
        many(
            "supported_features",
            (
                one("name", Kind.STRING),
                one("min_version", Kind.INT16),
                one("max_version", Kind.INT16),
            ),
            3,
            tag=0,
        ),
        one("finalized_features_epoch", Kind.INT64, 3, default=-1, tag=1),
        many(
            "finalized_features",
            (
                one("name", Kind.STRING),
                one("max_version_level", Kind.INT16),
                one("min_version_level", Kind.INT16),
            ),
            3,
            tag=2,
        ),
        one("zk_migration_ready", Kind.BOOL, 3, tag=3),
    ),
)

METADATA: Final = Message(
    flexible_since=9,
    request=(
        many(
            "topics",
            (one("topic_id", Kind.UUID, 10), one("name", Kind.STRING, null=10, default="")),
            null=1,
        ),
        one("allow_auto_topic_creation", Kind.BOOL, 4, default=True),
        one("include_cluster_authorized_operations", Kind.BOOL, 8, 10),
        one("include_topic_authorized_operations", Kind.BOOL, 8),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 3),
        many(
            "brokers",
            (
                one("node_id", Kind.INT32),
                one("host", Kind.STRING),
                one("port", Kind.INT32),
                one("rack", Kind.STRING, 1, null=1),
            ),
        ),
        one("cluster_id", Kind.STRING, 2, null=2),
        one("controller_id", Kind.INT32, 1, default=-1),
        many(
            "topics",
            (
                one("error_code", Kind.INT16),
                one("name", Kind.STRING, null=12, default=""),
                one("topic_id", Kind.UUID, 10),
                one("is_internal", Kind.BOOL, 1),
                many(
                    "partitions",
                    (
                        one("error_code", Kind.INT16),
                        one("partition_index", Kind.INT32),
                        one("leader_id", Kind.INT32),
                        one("leader_epoch", Kind.INT32, 7, default=-1),
                        many("replica_nodes", Kind.INT32),
                        many("isr_nodes", Kind.INT32),
                        many("offline_replicas", Kind.INT32, 5),
                    ),
                ),
                one("topic_authorized_operations", Kind.INT32, 8, default=NOT_ASKED),
            ),
        ),
        one("cluster_authorized_operations", Kind.INT32, 8, 10, default=NOT_ASKED),
    ),
)

DESCRIBE_CLUSTER: Final = Message(
    flexible_since=0,
    request=(
        one("include_cluster_authorized_operations", Kind.BOOL),
        one("endpoint_type", Kind.INT8, 1, default=1),
        one("include_fenced_brokers", Kind.BOOL, 2),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32),
        one("error_code", Kind.INT16),
        one("error_message", Kind.STRING, null=0),
        one("endpoint_type", Kind.INT8, 1, default=1),
        one("cluster_id", Kind.STRING),
        one("controller_id", Kind.INT32, default=-1),
        many(
            "brokers",
            (
                one("broker_id", Kind.INT32),
                one("host", Kind.STRING),
                one("port", Kind.INT32),
                one("rack", Kind.STRING, null=0),
                one("is_fenced", Kind.BOOL, 2),
            ),
        ),
        one("cluster_authorized_operations", Kind.INT32, default=NOT_ASKED),
    ),
)

SASL_HANDSHAKE: Final = Message(
    request=(one("mechanism", Kind.STRING),),
    response=(one("error_code", Kind.INT16), many("mechanisms", Kind.STRING)),
)

SASL_AUTHENTICATE: Final = Message(
    flexible_since=2,
    request=(one("auth_bytes", Kind.BYTES),),
    response=(
        one("error_code", Kind.INT16),
        one("error_message", Kind.STRING, null=0),
        one("auth_bytes", Kind.BYTES),
        one("session_lifetime_ms", Kind.INT64, 1),
    ),
)
