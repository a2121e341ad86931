"""Messages that make, change and delete topics and their settings."""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.fields import FieldType, Message, many, one

CREATE_TOPICS: Final = Message(
    flexible_since=5,
    request=(
        many(
            "topics",
            (
                one("name", FieldType.STRING),
                one("num_partitions", FieldType.INT32),
                one("replication_factor", FieldType.INT16),
                many(
                    "assignments",
                    (one("partition_index", FieldType.INT32), many("broker_ids", FieldType.INT32)),
                ),
                many(
                    "configs",
                    (one("name", FieldType.STRING), one("value", FieldType.STRING, null=0)),
                ),
            ),
        ),
        one("timeout_ms", FieldType.INT32, default=60_000),
        one("validate_only", FieldType.BOOL, 1),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 2),
        many(
            "topics",
            (
                one("name", FieldType.STRING),
                one("topic_id", FieldType.UUID, 7),
                one("error_code", FieldType.INT16),
                one("error_message", FieldType.STRING, 1, null=0),
                one("topic_config_error_code", FieldType.INT16, 5, tag=0),
                one("num_partitions", FieldType.INT32, 5, default=-1),
                one("replication_factor", FieldType.INT16, 5, default=-1),
                many(
                    "configs",
                    (
                        one("name", FieldType.STRING),
                        one("value", FieldType.STRING, null=0),
                        one("read_only", FieldType.BOOL),
                        one("config_source", FieldType.INT8, default=-1),
                        one("is_sensitive", FieldType.BOOL),
                    ),
                    5,
                    null=5,
                ),
            ),
        ),
    ),
)

DELETE_TOPICS: Final = Message(
    flexible_since=4,
    request=(
        many("topics", (one("name", FieldType.STRING, null=6), one("topic_id", FieldType.UUID)), 6),
        many("topic_names", FieldType.STRING, 0, 5),
        one("timeout_ms", FieldType.INT32),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 1),
        many(
            "responses",
            (
                one("name", FieldType.STRING, null=6, default=""),
                one("topic_id", FieldType.UUID, 6),
                one("error_code", FieldType.INT16),
                one("error_message", FieldType.STRING, 5, null=5),
            ),
        ),
    ),
)

CREATE_PARTITIONS: Final = Message(
    flexible_since=2,
    request=(
        many(
            "topics",
            (
                one("name", FieldType.STRING),
                one("count", FieldType.INT32),
                many("assignments", (many("broker_ids", FieldType.INT32),), null=0),
            ),
        ),
        one("timeout_ms", FieldType.INT32),
        one("validate_only", FieldType.BOOL),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32),
        many(
            "results",
            (
                one("name", FieldType.STRING),
                one("error_code", FieldType.INT16),
                one("error_message", FieldType.STRING, null=0),
            ),
        ),
    ),
)

DESCRIBE_CONFIGS: Final = Message(
    flexible_since=4,
    request=(
        many(
            "resources",
            (
                one("resource_type", FieldType.INT8),
                one("resource_name", FieldType.STRING),
                many("configuration_keys", FieldType.STRING, null=0),
            ),
        ),
        one("include_synonyms", FieldType.BOOL, 1),
        one("include_documentation", FieldType.BOOL, 3),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32),
        many(
            "results",
            (
                one("error_code", FieldType.INT16),
                one("error_message", FieldType.STRING, null=0),
                one("resource_type", FieldType.INT8),
                one("resource_name", FieldType.STRING),
                many(
                    "configs",
                    (
                        one("name", FieldType.STRING),
                        one("value", FieldType.STRING, null=0),
                        one("read_only", FieldType.BOOL),
                        one("is_default", FieldType.BOOL, 0, 0),
                        one("config_source", FieldType.INT8, 1, default=-1),
                        one("is_sensitive", FieldType.BOOL),
                        many(
                            "synonyms",
                            (
                                one("name", FieldType.STRING),
                                one("value", FieldType.STRING, null=0),
                                one("source", FieldType.INT8),
                            ),
                            1,
                        ),
                        one("config_type", FieldType.INT8, 3),
                        one("documentation", FieldType.STRING, 3, null=0),
                    ),
                ),
            ),
        ),
    ),
)

_CHANGED: Final = (
    one("throttle_time_ms", FieldType.INT32),
    many(
        "responses",
        (
            one("error_code", FieldType.INT16),
            one("error_message", FieldType.STRING, null=0),
            one("resource_type", FieldType.INT8),
            one("resource_name", FieldType.STRING),
        ),
    ),
)

ALTER_CONFIGS: Final = Message(
    flexible_since=2,
    request=(
        many(
            "resources",
            (
                one("resource_type", FieldType.INT8),
                one("resource_name", FieldType.STRING),
                many(
                    "configs",
                    (one("name", FieldType.STRING), one("value", FieldType.STRING, null=0)),
                ),
            ),
        ),
        one("validate_only", FieldType.BOOL),
    ),
    response=_CHANGED,
)

INCREMENTAL_ALTER_CONFIGS: Final = Message(
    flexible_since=1,
    request=(
        many(
            "resources",
            (
                one("resource_type", FieldType.INT8),
                one("resource_name", FieldType.STRING),
                many(
                    "configs",
                    (
                        one("name", FieldType.STRING),
                        one("config_operation", FieldType.INT8),
                        one("value", FieldType.STRING, null=0),
                    ),
                ),
            ),
        ),
        one("validate_only", FieldType.BOOL),
    ),
    response=_CHANGED,
)
