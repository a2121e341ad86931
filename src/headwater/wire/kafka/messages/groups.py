"""Messages between the members of a consumer group and its coordinator."""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.fields import FieldType, Message, many, one
from headwater.wire.kafka.messages.cluster import NOT_REQUESTED

FIND_COORDINATOR: Final = Message(
    flexible_since=3,
    request=(
        one("key", FieldType.STRING, 0, 3),
        one("key_type", FieldType.INT8, 1),
        many("coordinator_keys", FieldType.STRING, 4),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 1),
        one("error_code", FieldType.INT16, 0, 3),
        one("error_message", FieldType.STRING, 1, 3, null=(1, 3)),
        one("node_id", FieldType.INT32, 0, 3),
        one("host", FieldType.STRING, 0, 3),
        one("port", FieldType.INT32, 0, 3),
        many(
            "coordinators",
            (
                one("key", FieldType.STRING),
                one("node_id", FieldType.INT32),
                one("host", FieldType.STRING),
                one("port", FieldType.INT32),
                one("error_code", FieldType.INT16),
                one("error_message", FieldType.STRING, null=4),
            ),
            4,
        ),
    ),
)

JOIN_GROUP: Final = Message(
    flexible_since=6,
    request=(
        one("group_id", FieldType.STRING),
        one("session_timeout_ms", FieldType.INT32),
        one("rebalance_timeout_ms", FieldType.INT32, 1, default=-1),
        one("member_id", FieldType.STRING),
        one("group_instance_id", FieldType.STRING, 5, null=5),
        one("protocol_type", FieldType.STRING),
        many("protocols", (one("name", FieldType.STRING), one("metadata", FieldType.BYTES))),
        one("reason", FieldType.STRING, 8, null=8),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 2),
        one("error_code", FieldType.INT16),
        one("generation_id", FieldType.INT32, default=-1),
        one("protocol_type", FieldType.STRING, 7, null=7),
        one("protocol_name", FieldType.STRING, null=7, default=""),
        one("leader", FieldType.STRING),
        one("skip_assignment", FieldType.BOOL, 9),
        one("member_id", FieldType.STRING),
        many(
            "members",
            (
                one("member_id", FieldType.STRING),
                one("group_instance_id", FieldType.STRING, 5, null=5),
                one("metadata", FieldType.BYTES),
            ),
        ),
    ),
)

SYNC_GROUP: Final = Message(
    flexible_since=4,
    request=(
        one("group_id", FieldType.STRING),
        one("generation_id", FieldType.INT32),
        one("member_id", FieldType.STRING),
        one("group_instance_id", FieldType.STRING, 3, null=3),
        one("protocol_type", FieldType.STRING, 5, null=5),
        one("protocol_name", FieldType.STRING, 5, null=5),
        many(
            "assignments", (one("member_id", FieldType.STRING), one("assignment", FieldType.BYTES))
        ),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 1),
        one("error_code", FieldType.INT16),
        one("protocol_type", FieldType.STRING, 5, null=5),
        one("protocol_name", FieldType.STRING, 5, null=5),
        one("assignment", FieldType.BYTES),
    ),
)

HEARTBEAT: Final = Message(
    flexible_since=4,
    request=(
        one("group_id", FieldType.STRING),
        one("generation_id", FieldType.INT32),
        one("member_id", FieldType.STRING),
        one("group_instance_id", FieldType.STRING, 3, null=3),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 1),
        one("error_code", FieldType.INT16),
    ),
)

LEAVE_GROUP: Final = Message(
    flexible_since=4,
    request=(
        one("group_id", FieldType.STRING),
        one("member_id", FieldType.STRING, 0, 2),
        many(
            "members",
            (
                one("member_id", FieldType.STRING),
                one("group_instance_id", FieldType.STRING, null=3),
                one("reason", FieldType.STRING, 5, null=5),
            ),
            3,
        ),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 1),
        one("error_code", FieldType.INT16),
        many(
            "members",
            (
                one("member_id", FieldType.STRING),
                one("group_instance_id", FieldType.STRING, null=3),
                one("error_code", FieldType.INT16),
            ),
            3,
        ),
    ),
)

DESCRIBE_GROUPS: Final = Message(
    flexible_since=5,
    request=(
        many("groups", FieldType.STRING),
        one("include_authorized_operations", FieldType.BOOL, 3),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 1),
        many(
            "groups",
            (
                one("error_code", FieldType.INT16),
                one("error_message", FieldType.STRING, 6, null=6),
                one("group_id", FieldType.STRING),
                one("group_state", FieldType.STRING),
                one("protocol_type", FieldType.STRING),
                one("protocol_data", FieldType.STRING),
                many(
                    "members",
                    (
                        one("member_id", FieldType.STRING),
                        one("group_instance_id", FieldType.STRING, 4, null=4),
                        one("client_id", FieldType.STRING),
                        one("client_host", FieldType.STRING),
                        one("member_metadata", FieldType.BYTES),
                        one("member_assignment", FieldType.BYTES),
                    ),
                ),
                one("authorized_operations", FieldType.INT32, 3, default=NOT_REQUESTED),
            ),
        ),
    ),
)

LIST_GROUPS: Final = Message(
    flexible_since=3,
    request=(
        many("states_filter", FieldType.STRING, 4),
        many("types_filter", FieldType.STRING, 5),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 1),
        one("error_code", FieldType.INT16),
        many(
            "groups",
            (
                one("group_id", FieldType.STRING),
                one("protocol_type", FieldType.STRING),
                one("group_state", FieldType.STRING, 4),
                one("group_type", FieldType.STRING, 5),
            ),
        ),
    ),
)

DELETE_GROUPS: Final = Message(
    flexible_since=2,
    request=(many("groups_names", FieldType.STRING),),
    response=(
        one("throttle_time_ms", FieldType.INT32),
        many("results", (one("group_id", FieldType.STRING), one("error_code", FieldType.INT16))),
    ),
)
