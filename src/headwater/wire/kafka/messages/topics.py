"""Messages that make, change and delete topics and their settings."""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.fields import Kind, Message, many, one

CREATE_TOPICS: Final = Message(
    flexible_since=5,
    request=(
        many(
            "topics",
            (
                one("name", Kind.STRING),
                one("num_partitions", Kind.INT32),
                one("replication_factor", Kind.INT16),
                many(
                    "assignments",
                    (one("partition_index", Kind.INT32), many("broker_ids", Kind.INT32)),
                ),
                many(
                    "configs",
                    (one("name", Kind.STRING), one("value", Kind.STRING, null=0)),
                ),
            ),
        ),
        one("timeout_ms", Kind.INT32, default=60_000),
        one("validate_only", Kind.BOOL, 1),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 2),
        many(
            "topics",
            (
                one("name", Kind.STRING),
                one("topic_id", Kind.UUID, 7),
                one("error_code", Kind.INT16),
                one("error_message", Kind.STRING, 1, null=0),
                one("topic_config_error_code", Kind.INT16, 5, tag=0),
                one("num_partitions", Kind.INT32, 5, default=-1),
                one("replication_factor", Kind.INT16, 5, default=-1),
                many(
                    "configs",
                    (
                        one("name", Kind.STRING),
                        one("value", Kind.STRING, null=0),
                        one("read_only", Kind.BOOL),
                        one("config_source", Kind.INT8, default=-1),
                        one("is_sensitive", Kind.BOOL),
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
        many("topics", (one("name", Kind.STRING, null=6), one("topic_id", Kind.UUID)), 6),
        many("topic_names", Kind.STRING, 0, 5),
        one("timeout_ms", Kind.INT32),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 1),
        many(
            "responses",
            (
                one("name", Kind.STRING, null=6, default=""),
                one("topic_id", Kind.UUID, 6),
                one("error_code", Kind.INT16),
                one("error_message", Kind.STRING, 5, null=5),
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
                one("name", Kind.STRING),
                one("count", Kind.INT32),
                many("assignments", (many("broker_ids", Kind.INT32),), null=0),
            ),
        ),
        one("timeout_ms", Kind.INT32),
        one("validate_only", Kind.BOOL),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32),
        many(
            "results",
            (
                one("name", Kind.STRING),
                one("error_code", Kind.INT16),
                one("error_message", Kind.STRING, null=0),
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
                one("resource_type", Kind.INT8),
                one("resource_name", Kind.STRING),
                many("configuration_keys", Kind.STRING, null=0),
            ),
        ),
        one("include_synonyms", Kind.BOOL, 1),
        one("include_documentation", Kind.BOOL, 3),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32),
        many(
            "results",
            (
                one("error_code", Kind.INT16),
                one("error_message", Kind.STRING, null=0),
                one("resource_type", Kind.INT8),
                one("resource_name", Kind.STRING),
                many(
                    "configs",
                    (
                        one("name", Kind.STRING),
                        one("value", Kind.STRING, null=0),
                        one("read_only", Kind.BOOL),
                        one("is_default", Kind.BOOL, 0, 0),
                        one("config_source", Kind.INT8, 1, default=-1),
                        one("is_sensitive", Kind.BOOL),
                        many(
                            "synonyms",
                            (
                                one("name", Kind.STRING),
                                one("value", Kind.STRING, null=0),
                                one("source", Kind.INT8),
                            ),
                            1,
                        ),
                        one("config_type", Kind.INT8, 3),
                        one("documentation", Kind.STRING, 3, null=0),
                    ),
                ),
            ),
        ),
    ),
)

_CHANGED: Final = (
    one("throttle_time_ms", Kind.INT32),
    many(
        "responses",
        (
            one("error_code", Kind.INT16),
            one("error_message", Kind.STRING, null=0),
            one("resource_type", Kind.INT8),
            one("resource_name", Kind.STRING),
        ),
    ),
)

ALTER_CONFIGS: Final = Message(
    flexible_since=2,
    request=(
        many(
            "resources",
            (
                one("resource_type", Kind.INT8),
                one("resource_name", Kind.STRING),
                many(
                    "configs",
                    (one("name", Kind.STRING), one("value", Kind.STRING, null=0)),
                ),
            ),
        ),
        one("validate_only", Kind.BOOL),
    ),
    response=_CHANGED,
)

INCREMENTAL_ALTER_CONFIGS: Final = Message(
    flexible_since=1,
    request=(
        many(
            "resources",
            (
                one("resource_type", Kind.INT8),
                one("resource_name", Kind.STRING),
                many(
                    "configs",
                    (
                        one("name", Kind.STRING),
                        one("config_operation", Kind.INT8),
                        one("value", Kind.STRING, null=0),
                    ),
                ),
            ),
        ),
        one("validate_only", Kind.BOOL),
    ),
    response=_CHANGED,
)
