"""Messages about how far a consumer group has read."""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.fields import FieldType, Message, many, one

OFFSET_COMMIT: Final = Message(
    flexible_since=8,
    request=(
        one("group_id", FieldType.STRING),
        one("generation_id_or_member_epoch", FieldType.INT32, 1, default=-1),
        one("member_id", FieldType.STRING, 1),
        one("group_instance_id", FieldType.STRING, 7, null=7),
        one("retention_time_ms", FieldType.INT64, 2, 4, default=-1),
        many(
            "topics",
            (
                one("name", FieldType.STRING),
                many(
                    "partitions",
                    (
                        one("partition_index", FieldType.INT32),
                        one("committed_offset", FieldType.INT64),
                        one("committed_leader_epoch", FieldType.INT32, 6, default=-1),
                        one("committed_metadata", FieldType.STRING, null=0),
                    ),
                ),
            ),
        ),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 3),
        many(
            "topics",
            (
                one("name", FieldType.STRING),
                many(
                    "partitions",
                    (one("partition_index", FieldType.INT32), one("error_code", FieldType.INT16)),
                ),
            ),
        ),
    ),
)

_OFFSETS: Final = (
    one("name", FieldType.STRING),
    many(
        "partitions",
        (
            one("partition_index", FieldType.INT32),
            one("committed_offset", FieldType.INT64),
            one("committed_leader_epoch", FieldType.INT32, 5, default=-1),
            one("metadata", FieldType.STRING, null=0),
            one("error_code", FieldType.INT16),
        ),
    ),
)
_REQUESTED_TOPIC: Final = (
    one("name", FieldType.STRING),
    many("partition_indexes", FieldType.INT32),
)

OFFSET_FETCH: Final = Message(
    flexible_since=6,
    request=(
        one("group_id", FieldType.STRING, 0, 7),
        many("topics", _REQUESTED_TOPIC, 0, 7, null=(2, 7)),
        many(
            "groups",
            (
                one("group_id", FieldType.STRING),
                one("member_id", FieldType.STRING, 9, null=9),
                one("member_epoch", FieldType.INT32, 9, default=-1),
                many("topics", _REQUESTED_TOPIC, null=8),
            ),
            8,
        ),
        one("require_stable", FieldType.BOOL, 7),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 3),
        many("topics", _OFFSETS, 0, 7),
        one("error_code", FieldType.INT16, 2, 7),
        many(
            "groups",
            (
                one("group_id", FieldType.STRING),
                many("topics", _OFFSETS),
                one("error_code", FieldType.INT16),
            ),
            8,
        ),
    ),
)

OFFSET_DELETE: Final = Message(
    request=(
        one("group_id", FieldType.STRING),
        many(
            "topics",
            (
                one("name", FieldType.STRING),
                many("partitions", (one("partition_index", FieldType.INT32),)),
            ),
        ),
    ),
    response=(
        one("error_code", FieldType.INT16),
        one("throttle_time_ms", FieldType.INT32),
        many(
            "topics",
            (
                one("name", FieldType.STRING),
                many(
                    "partitions",
                    (one("partition_index", FieldType.INT32), one("error_code", FieldType.INT16)),
                ),
            ),
        ),
    ),
)
