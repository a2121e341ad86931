"""Messages between the members of a consumer group and its coordinator."""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.fields import Kind, Message, many, one
from headwater.wire.kafka.messages.cluster import NOT_ASKED

FIND_COORDINATOR: Final = Message(
    flexible_since=3,
    request=(
        one("key", Kind.STRING, 0, 3),
        one("key_type", Kind.INT8, 1),
        many("coordinator_keys", Kind.STRING, 4),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 1),
        one("error_code", Kind.INT16, 0, 3),
        one("error_message", Kind.STRING, 1, 3, null=(1, 3)),
        one("node_id", Kind.INT32, 0, 3),
        one("host", Kind.STRING, 0, 3),
        one("port", Kind.INT32, 0, 3),
        many(
            "coordinators",
            (
                one("key", Kind.STRING),
                one("node_id", Kind.INT32),
                one("host", Kind.STRING),
                one("port", Kind.INT32),
                one("error_code", Kind.INT16),
                one("error_message", Kind.STRING, null=4),
            ),
            4,
        ),
    ),
)

JOIN_GROUP: Final = Message(
    flexible_since=6,
    request=(
        one("group_id", Kind.STRING),
        one("session_timeout_ms", Kind.INT32),
        one("rebalance_timeout_ms", Kind.INT32, 1, default=-1),
        one("member_id", Kind.STRING),
        one("group_instance_id", Kind.STRING, 5, null=5),
        one("protocol_type", Kind.STRING),
        many("protocols", (one("name", Kind.STRING), one("metadata", Kind.BYTES))),
        one("reason", Kind.STRING, 8, null=8),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 2),
        one("error_code", Kind.INT16),
        one("generation_id", Kind.INT32, default=-1),
        one("protocol_type", Kind.STRING, 7, null=7),
        one("protocol_name", Kind.STRING, null=7, default=""),
        one("leader", Kind.STRING),
        one("skip_assignment", Kind.BOOL, 9),
        one("member_id", Kind.STRING),
        many(
            "members",
            (
                one("member_id", Kind.STRING),
                one("group_instance_id", Kind.STRING, 5, null=5),
                one("metadata", Kind.BYTES),
            ),
        ),
    ),
)

SYNC_GROUP: Final = Message(
    flexible_since=4,
    request=(
        one("group_id", Kind.STRING),
        one("generation_id", Kind.INT32),
        one("member_id", Kind.STRING),
        one("group_instance_id", Kind.STRING, 3, null=3),
        one("protocol_type", Kind.STRING, 5, null=5),
        one("protocol_name", Kind.STRING, 5, null=5),
        many("assignments", (one("member_id", Kind.STRING), one("assignment", Kind.BYTES))),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 1),
        one("error_code", Kind.INT16),
        one("protocol_type", Kind.STRING, 5, null=5),
        one("protocol_name", Kind.STRING, 5, null=5),
        one("assignment", Kind.BYTES),
    ),
)

HEARTBEAT: Final = Message(
    flexible_since=4,
    request=(
        one("group_id", Kind.STRING),
        one("generation_id", Kind.INT32),
        one("member_id", Kind.STRING),
        one("group_instance_id", Kind.STRING, 3, null=3),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 1),
        one("error_code", Kind.INT16),
    ),
)

LEAVE_GROUP: Final = Message(
    flexible_since=4,
    request=(
        one("group_id", Kind.STRING),
        one("member_id", Kind.STRING, 0, 2),
        many(
            "members",
            (
                one("member_id", Kind.STRING),
                one("group_instance_id", Kind.STRING, null=3),
                one("reason", Kind.STRING, 5, null=5),
            ),
            3,
        ),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 1),
        one("error_code", Kind.INT16),
        many(
            "members",
            (
                one("member_id", Kind.STRING),
                one("group_instance_id", Kind.STRING, null=3),
                one("error_code", Kind.INT16),
            ),
            3,
        ),
    ),
)

DESCRIBE_GROUPS: Final = Message(
    flexible_since=5,
    request=(
        many("groups", Kind.STRING),
        one("include_authorized_operations", Kind.BOOL, 3),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 1),
        many(
            "groups",
            (
                one("error_code", Kind.INT16),
                one("error_message", Kind.STRING, 6, null=6),
                one("group_id", Kind.STRING),
                one("group_state", Kind.STRING),
                one("protocol_type", Kind.STRING),
                one("protocol_data", Kind.STRING),
                many(
                    "members",
                    (
                        one("member_id", Kind.STRING),
                        one("group_instance_id", Kind.STRING, 4, null=4),
                        one("client_id", Kind.STRING),
                        one("client_host", Kind.STRING),
                        one("member_metadata", Kind.BYTES),
                        one("member_assignment", Kind.BYTES),
                    ),
                ),
                one("authorized_operations", Kind.INT32, 3, default=NOT_ASKED),
            ),
        ),
    ),
)

LIST_GROUPS: Final = Message(
    flexible_since=3,
    request=(
        many("states_filter", Kind.STRING, 4),
        many("types_filter", Kind.STRING, 5),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 1),
        one("error_code", Kind.INT16),
        many(
            "groups",
            (
                one("group_id", Kind.STRING),
                one("protocol_type", Kind.STRING),
                one("group_state", Kind.STRING, 4),
                one("group_type", Kind.STRING, 5),
            ),
        ),
    ),
)

DELETE_GROUPS: Final = Message(
    flexible_since=2,
    request=(many("groups_names", Kind.STRING),),
    response=(
        one("throttle_time_ms", Kind.INT32),
        many("results", (one("group_id", Kind.STRING), one("error_code", Kind.INT16))),
    ),
)
