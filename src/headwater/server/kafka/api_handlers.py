"""Which handler answers which API, the scope it needs, and the error without that scope.

Above all handlers and below connections, which hand each request to `handle`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from headwater.core.errors import HeadwaterError
from headwater.server.access.keys import Scope
from headwater.server.kafka import (
    cluster,
    configs,
    fetch,
    group_offsets,
    groups,
    offsets,
    produce,
    sasl,
    topics,
)
from headwater.server.kafka.endpoint import Call, KafkaEndpoint
from headwater.server.kafka.refusals import code_of
from headwater.wire.kafka.apis import ApiKey, ErrorCode

Handler = Callable[[KafkaEndpoint, Call], None]

_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class Handled(NamedTuple):
    handle: Handler
    scope: Scope = Scope.NONE
    denied: ErrorCode = _CLUSTER
    is_open: bool = False
    """Also before signing in."""


HANDLED: Final[dict[ApiKey, Handled]] = {
    ApiKey.PRODUCE: Handled(produce.produce, Scope.WRITE, _TOPIC),
    ApiKey.FETCH: Handled(fetch.fetch, Scope.READ, _TOPIC),
    ApiKey.LIST_OFFSETS: Handled(offsets.list_offsets, Scope.READ, _TOPIC),
    # Producers need it too.
    ApiKey.METADATA: Handled(cluster.metadata),
    ApiKey.OFFSET_COMMIT: Handled(group_offsets.commit, Scope.READ, _GROUP),
    ApiKey.OFFSET_FETCH: Handled(group_offsets.fetch, Scope.READ, _GROUP),
    ApiKey.FIND_COORDINATOR: Handled(cluster.find_coordinator),
    ApiKey.JOIN_GROUP: Handled(groups.join, Scope.READ, _GROUP),
    ApiKey.HEARTBEAT: Handled(groups.heartbeat, Scope.READ, _GROUP),
    ApiKey.LEAVE_GROUP: Handled(groups.leave, Scope.READ, _GROUP),
    ApiKey.SYNC_GROUP: Handled(groups.sync, Scope.READ, _GROUP),
    ApiKey.DESCRIBE_GROUPS: Handled(groups.describe, Scope.READ, _GROUP),
    ApiKey.LIST_GROUPS: Handled(groups.list_groups, Scope.READ, _CLUSTER),
    ApiKey.SASL_HANDSHAKE: Handled(sasl.handshake, is_open=True),
    ApiKey.API_VERSIONS: Handled(cluster.api_versions, is_open=True),
    ApiKey.CREATE_TOPICS: Handled(topics.create, Scope.OWN, _TOPIC),
    ApiKey.DELETE_TOPICS: Handled(topics.delete, Scope.OWN, _TOPIC),
    ApiKey.DELETE_RECORDS: Handled(offsets.delete_records, Scope.DELETE, _TOPIC),
    ApiKey.INIT_PRODUCER_ID: Handled(produce.init_producer_id, Scope.WRITE, _CLUSTER),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Handled(offsets.for_leader_epoch, Scope.READ, _TOPIC),
    ApiKey.DESCRIBE_CONFIGS: Handled(configs.describe, Scope.READ, _TOPIC),
    ApiKey.ALTER_CONFIGS: Handled(configs.alter, Scope.OWN, _TOPIC),
    ApiKey.SASL_AUTHENTICATE: Handled(sasl.authenticate, is_open=True),
    ApiKey.CREATE_PARTITIONS: Handled(topics.create_partitions, Scope.OWN, _TOPIC),
    ApiKey.DELETE_GROUPS: Handled(groups.delete, Scope.DELETE, _GROUP),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Handled(configs.alter_incrementally, Scope.OWN, _TOPIC),
    ApiKey.OFFSET_DELETE: Handled(group_offsets.delete, Scope.DELETE, _GROUP),
    ApiKey.DESCRIBE_CLUSTER: Handled(cluster.describe_cluster),
}

OF_GROUPS: Final = frozenset(
    {
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_DELETE,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
    }
)
"""What a coordinator answers: where it cannot read its log, it is not available."""


def handle(endpoint: KafkaEndpoint, call: Call) -> None:
    """Check the principal, let the handler begin. Never raises."""
    endpoint.counters.requests[call.api] += 1
    handled = HANDLED[call.api]
    principal = call.connection.principal
    try:
        if call.unsupported:
            _refuse_version(endpoint, call)
        elif principal is None and not handled.is_open:
            endpoint.hung_up(call.connection, f"{call.api.name} before signing in")
            call.answer_nothing()
            call.connection.drain()
        elif principal is not None and handled.scope.value & ~principal.scopes.value:
            call.refuse(handled.denied, f"{principal.name} may not do this")
        elif endpoint.store.unavailable is not None and call.api in OF_GROUPS:
            # Clients ask again for their coordinator, and go on when it is back.
            call.refuse(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, str(endpoint.store.unavailable.error())
            )
        else:
            handled.handle(endpoint, call)
    except HeadwaterError as error:
        call.refuse(code_of(error), str(error))
    except Exception as error:
        endpoint.broken(call, error)


def _refuse_version(endpoint: KafkaEndpoint, call: Call) -> None:
    if call.api is ApiKey.API_VERSIONS:
        HANDLED[call.api].handle(endpoint, call)
    else:
        call.refuse(ErrorCode.UNSUPPORTED_VERSION)
