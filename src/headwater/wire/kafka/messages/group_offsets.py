"""Messages about how far a consumer group has read."""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.fields import Kind, Message, many, one

OFFSET_COMMIT: Final = Message(
    flexible_since=8,
    request=(
        one("group_id", Kind.STRING),
        one("generation_id_or_member_epoch", Kind.INT32, 1, default=-1),
        one("member_id", Kind.STRING, 1),
        one("group_instance_id", Kind.STRING, 7, null=7),
        one("retention_time_ms", Kind.INT64, 2, 4, default=-1),
        many(
            "topics",
            (
                one("name", Kind.STRING),
                many(
                    "partitions",
                    (
                        one("partition_index", Kind.INT32),
                        one("committed_offset", Kind.INT64),
                        one("committed_leader_epoch", Kind.INT32, 6, default=-1),
                        one("committed_metadata", Kind.STRING, null=0),
                    ),
                ),
            ),
        ),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 3),
        many(
            "topics",
            (
                one("name", Kind.STRING),
                many(
                    "partitions",
                    (one("partition_index", Kind.INT32), one("error_code", Kind.INT16)),
                ),
            ),
        ),
    ),
)

_OFFSETS: Final = (
    one("name", Kind.STRING),
    many(
        "partitions",
        (
            one("partition_index", Kind.INT32),
            one("committed_offset", Kind.INT64),
            one("committed_leader_epoch", Kind.INT32, 5, default=-1),
            one("metadata", Kind.STRING, null=0),
            one("error_code", Kind.INT16),
        ),
    ),
)
_ASKED: Final = (one("name", Kind.STRING), many("partition_indexes", Kind.INT32))

OFFSET_FETCH: Final = Message(
    flexible_since=6,
    request=(
        one("group_id", Kind.STRING, 0, 7),
        many("topics", _ASKED, 0, 7, null=(2, 7)),
        many(
            "groups",
            (
                one("group_id", Kind.STRING),
                one("member_id", Kind.STRING, 9, null=9),
                one("member_epoch", Kind.INT32, 9, default=-1),
                many("topics", _ASKED, null=8),
            ),
            8,
        ),
        one("require_stable", Kind.BOOL, 7),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 3),
        many("topics", _OFFSETS, 0, 7),
        one("error_code", Kind.INT16, 2, 7),
        many(
            "groups",
            (
                one("group_id", Kind.STRING),
                many("topics", _OFFSETS),
                one("error_code", Kind.INT16),
            ),
            8,
        ),
    ),
)

OFFSET_DELETE: Final = Message(
    request=(
        one("group_id", Kind.STRING),
        many(
            "topics",
            (
                one("name", Kind.STRING),
                many("partitions", (one("partition_index", Kind.INT32),)),
            ),
        ),
    ),
    response=(
        one("error_code", Kind.INT16),
        one("throttle_time_ms", Kind.INT32),
        many(
            "topics",
            (
                one("name", Kind.STRING),
                many(
                    "partitions",
                    (one("partition_index", Kind.INT32), one("error_code", Kind.INT16)),
                ),
            ),
        ),
    ),
)
