"""Consumer groups on the wire: join, sync, heartbeat, leave, describe, list, delete."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headwater.core.errors import HeadwaterError
from headwater.core.units import US_PER_MS
from headwater.engine.kafka.coordinator import check_group_name
from headwater.model.kafka_group import (
    ConsumerGroup,
    Joined,
    JoinRequest,
    Member,
    Outcome,
    Phase,
    Refused,
    SyncedMember,
)
from headwater.server.kafka.endpoint import WaitGroup
from headwater.server.kafka.refusals import code_of, code_of_refusal
from headwater.wire.kafka.apis import ErrorCode

if TYPE_CHECKING:
    from headwater.engine.owner import Pending
    from headwater.server.kafka.endpoint import Call, KafkaEndpoint

HANDSHAKE_SINCE: Final = 4
SKIPPING_SINCE: Final = 9
NULL_PROTOCOL_SINCE: Final = 7
MISSING_SINCE: Final = 6
"""From this version of DescribeGroups on, a group that is not there is an error."""
LEAVING_TOGETHER_SINCE: Final = 3
CLASSIC: Final = "classic"
METADATA_BYTES_MAX: Final = 1024 * 1024
"""What a member may have us keep about itself."""
CLIENT_ID_SHOWN: Final = 200
"""Characters of a client's name that its member id begins with."""
_GONE: Final = {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}


def join(endpoint: KafkaEndpoint, call: Call) -> None:
    values = call.values
    check_group_name(values["group_id"])
    rebalance_ms = values["rebalance_timeout_ms"]
    if rebalance_ms < 0:  # version 0 has one timeout for both
        rebalance_ms = values["session_timeout_ms"]
    if sum(len(each["metadata"]) for each in values["protocols"]) > METADATA_BYTES_MAX:
        call.refuse(ErrorCode.INVALID_REQUEST)
        return
    client_id = call.client_id[:CLIENT_ID_SHOWN] or "member"
    request = JoinRequest(
        values["member_id"],
        f"{values['group_instance_id'] or client_id}-{secrets.token_hex(16)}",
        values["protocol_type"],
        tuple((each["name"], each["metadata"]) for each in values["protocols"]),
        values["session_timeout_ms"] * US_PER_MS,
        rebalance_ms * US_PER_MS,
        values["group_instance_id"],
        call.client_id,
        f"/{call.connection.peer}",
        knows_handshake=call.version >= HANDSHAKE_SINCE,
        knows_skipping=call.version >= SKIPPING_SINCE,
    )
    call.hurry = partial(call.answer, {**_GONE, "member_id": values["member_id"]})
    endpoint.coordinator.join(
        call.organisation, values["group_id"], request, partial(_answer_join, call)
    )


def _answer_join(call: Call, outcome: Outcome) -> None:
    if isinstance(outcome, Refused):
        null = None if call.version >= NULL_PROTOCOL_SINCE else ""
        call.answer(
            {
                "error_code": code_of_refusal(outcome.refusal),
                "member_id": outcome.member_id,
                "protocol_name": null,
            }
        )
        return
    assert isinstance(outcome, Joined)
    call.answer(
        {
            "error_code": ErrorCode.NONE,
            "generation_id": outcome.generation,
            "protocol_type": outcome.protocol_type,
            "protocol_name": outcome.protocol_name,
            "leader": outcome.leader,
            "skip_assignment": outcome.skip_assignment,
            "member_id": outcome.member_id,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.instance_id,
                    "metadata": member.metadata,
                }
                for member in outcome.members
            ],
        }
    )


def sync(endpoint: KafkaEndpoint, call: Call) -> None:
    values = call.values
    call.hurry = partial(call.answer, _GONE)
    endpoint.coordinator.sync(
        call.organisation,
        values["group_id"],
        values["member_id"],
        values["generation_id"],
        {each["member_id"]: each["assignment"] for each in values["assignments"]},
        partial(_answer_sync, call),
        instance_id=values["group_instance_id"],
        protocol_type=values["protocol_type"],
        protocol_name=values["protocol_name"],
    )


def _answer_sync(call: Call, outcome: Outcome) -> None:
    if isinstance(outcome, Refused):
        call.answer({"error_code": code_of_refusal(outcome.refusal)})
        return
    assert isinstance(outcome, SyncedMember)
    call.answer(
        {
            "error_code": ErrorCode.NONE,
            "protocol_type": outcome.protocol_type,
            "protocol_name": outcome.protocol_name,
            "assignment": outcome.assignment,
        }
    )


def heartbeat(endpoint: KafkaEndpoint, call: Call) -> None:
    values = call.values
    refusal = endpoint.coordinator.heartbeat(
        call.organisation,
        values["group_id"],
        values["member_id"],
        values["generation_id"],
        values["group_instance_id"],
    )
    call.answer({"error_code": code_of_refusal(refusal)})


def leave(endpoint: KafkaEndpoint, call: Call) -> None:
    """One member in old versions, any number in newer ones."""
    values, several = call.values, call.version >= LEAVING_TOGETHER_SINCE
    leaving = values["members"]
    if not several:
        leaving = [{"member_id": values["member_id"], "group_instance_id": None}]
    rows = [
        {
            "member_id": each["member_id"],
            "group_instance_id": each["group_instance_id"],
            "error_code": code_of_refusal(
                endpoint.coordinator.leave(
                    call.organisation,
                    values["group_id"],
                    each["member_id"],
                    each["group_instance_id"],
                )
            ),
        }
        for each in leaving
    ]
    code = ErrorCode.NONE if several else rows[0]["error_code"]
    call.answer({"error_code": code, "members": rows if several else []})


# -- groups as a whole


def describe(endpoint: KafkaEndpoint, call: Call) -> None:
    rows = []
    for name in call.values["groups"]:
        group = endpoint.coordinator.group(call.organisation, name)
        if group is None:
            row: dict[str, Any] = {"group_id": name, "group_state": Phase.DEAD.value}
            if call.version >= MISSING_SINCE:
                row["error_code"] = ErrorCode.GROUP_ID_NOT_FOUND
                row["error_message"] = f"there is no group {name!r}"
        else:
            row = _group_row(group)
        rows.append(row)
    call.answer({"groups": rows})


def _group_row(group: ConsumerGroup) -> dict[str, Any]:
    is_stable = group.phase is Phase.STABLE
    return {
        "error_code": ErrorCode.NONE,
        "group_id": group.name,
        "group_state": group.phase.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name if is_stable else "",
        "members": [_member_row(group, member) for member in group.members.values()],
    }


def _member_row(group: ConsumerGroup, member: Member) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata(group.protocol_name),
        "member_assignment": member.assignment,
    }


def list_groups(endpoint: KafkaEndpoint, call: Call) -> None:
    states = {state.lower() for state in call.values["states_filter"]}
    types = {kind.lower() for kind in call.values["types_filter"]}
    rows = [
        {
            "group_id": group.name,
            "protocol_type": group.protocol_type,
            "group_state": group.phase.value,
            "group_type": CLASSIC,
        }
        for group in endpoint.coordinator.groups(call.organisation)
        if (not states or group.phase.value.lower() in states) and (not types or CLASSIC in types)
    ]
    call.answer({"error_code": ErrorCode.NONE, "groups": rows})


def delete(endpoint: KafkaEndpoint, call: Call) -> None:
    rows: list[dict[str, Any]] = []
    wait_group: WaitGroup[bool] = WaitGroup(lambda: call.answer({"results": rows}))
    for name in call.values["groups_names"]:
        row: dict[str, Any] = {"group_id": name, "error_code": ErrorCode.NONE}
        rows.append(row)
        try:
            pending = endpoint.coordinator.delete(call.organisation, name)
            wait_group.expect(pending, partial(_deleted, row))
        except HeadwaterError as error:
            row["error_code"] = code_of(error)
    wait_group.end()


def _deleted(row: dict[str, Any], done: Pending[bool]) -> None:
    if done.error is not None:
        row["error_code"] = code_of(done.error)
