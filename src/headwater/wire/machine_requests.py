"""What callers say about machines and instances, as structs: bodies over HTTP, params over RCPX.

Both surfaces take the same fields under the same names. HTTP refuses what is not declared here.
RCPX passes over it, takes the nearest limit there is instead of refusing one, and does in a batch
what its published clients expect: they were written for a server that does so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from headwater.core.errors import InvalidRequestError
from headwater.wire.requests import Body

OFFSET_MAX: Final = 2**64 - 1
LIST_LIMIT_DEFAULT: Final = 100
LIST_LIMIT_MAX: Final = 1_000
BATCH_OPERATIONS_MAX: Final = 100

Version = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
Offset = Annotated[int, msgspec.Meta(ge=0)] | Annotated[str, msgspec.Meta(pattern="^[0-9]{1,20}$")]
"""A position in the WAL. Or text: from segment 8192 on not every JSON reader keeps the number."""
Context = dict[str, Any]
Milliseconds = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=LIST_LIMIT_MAX)]


class PutMachineBody(Body):
    definition: dict[str, Any]


class CreateInstanceBody(Body):
    machine: str
    version: Version | None = None
    """The newest without it."""
    instance_id: str | None = None
    initial_ctx: Context | None = None
    idempotency_key: str | None = None
    ttl_ms: Milliseconds | None = None


class ApplyEventBody(Body):
    event: str
    payload: Context | None = None
    expected_state: str | None = None
    expected_wal_offset: Offset | None = None
    event_id: str | None = None
    idempotency_key: str | None = None


class MigrateBody(Body):
    version: Version
    state_map: dict[str, str] | None = None
    """From states of the old version to states of the new one, where their names differ."""


class BatchCreate(CreateInstanceBody):
    pass


class BatchApply(ApplyEventBody, kw_only=True):
    instance_id: str


class BatchDelete(Body):
    instance_id: str
    idempotency_key: str | None = None


class BatchOperation(Body):
    op: Literal["CREATE_INSTANCE", "APPLY_EVENT", "DELETE_INSTANCE"]
    params: dict[str, Any] = msgspec.field(default_factory=dict)


Operations = Annotated[
    list[BatchOperation], msgspec.Meta(min_length=1, max_length=BATCH_OPERATIONS_MAX)
]


class BatchBody(Body):
    operations: Operations
    mode: Literal["atomic", "best_effort"] = "atomic"


class WalReadBody(Body):
    from_offset: Offset = 0
    limit: Limit = LIST_LIMIT_DEFAULT
    newest: bool = False
    """The last entries there are, up to the limit, instead of those from an offset on."""


class CompactBody(Body):
    force_snapshot: bool = False
    """Take a snapshot even when nothing has changed since the last one."""


# -- what only RCPX says: there the name of a thing stands in its params, not in a path


class Params(msgspec.Struct):
    """Base of these: fields that are not known are passed over."""


def nearest_limit(given: int | None) -> int:
    """None and 0 ask for the usual one, more than there may be for as many as there may be."""
    return min(given, LIST_LIMIT_MAX) if given is not None and given > 0 else LIST_LIMIT_DEFAULT


class HelloParams(Params):
    protocol_version: int = 1
    client_name: str = ""
    wire_modes: list[str] = msgspec.field(default_factory=list)
    features: list[str] = msgspec.field(default_factory=list)


class AuthParams(Params):
    token: str
    method: str = "bearer"


class NoParams(Params):
    """Operations without parameters."""


class PutMachineParams(Params, kw_only=True):
    definition: dict[str, Any]
    machine: str
    version: Version
    checksum: str | None = None


class GetMachineParams(Params):
    machine: str
    version: Version | None = None


class CreateInstanceParams(CreateInstanceBody, forbid_unknown_fields=False):
    pass


class ApplyEventParams(BatchApply, forbid_unknown_fields=False):
    pass


class DeleteInstanceParams(BatchDelete, forbid_unknown_fields=False):
    pass


class InstanceParams(Params):
    instance_id: str


class ListInstancesParams(Params):
    machine: str | None = None
    state: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=0)] | None = LIST_LIMIT_DEFAULT
    offset: Annotated[int, msgspec.Meta(ge=0)] | None = 0


class BatchOperationParams(Params):
    op: Literal["CREATE_INSTANCE", "APPLY_EVENT", "DELETE_INSTANCE", "GET_INSTANCE", "PING"]
    params: dict[str, Any] | None = None


BatchOperations = Annotated[
    list[BatchOperationParams], msgspec.Meta(max_length=BATCH_OPERATIONS_MAX)
]


class BatchParams(Params):
    """The published clients call the list `ops`, the documents `operations`."""

    ops: BatchOperations | None = None
    operations: BatchOperations | None = None
    mode: Literal["atomic", "best_effort"] | None = None


class WatchInstanceParams(Params):
    instance_id: str
    include_ctx: bool | None = True
    from_offset: Offset | None = None


class WatchAllParams(Params):
    include_ctx: bool | None = True
    from_offset: Offset | None = None
    machines: list[str] | None = None
    events: list[str] | None = None
    from_states: list[str] | None = None
    to_states: list[str] | None = None


class UnwatchParams(Params):
    subscription_id: str


class MigrateParams(MigrateBody, kw_only=True, forbid_unknown_fields=False):
    instance_id: str


class HistoryParams(Params):
    instance_id: str
    limit: int | None = None


class WalReadParams(Params):
    from_offset: Offset | None = 0
    limit: int | None = None
    newest: bool = False


class CompactParams(CompactBody, forbid_unknown_fields=False):
    pass


BatchedParams = CreateInstanceBody | BatchApply | BatchDelete | InstanceParams | NoParams
BATCH_PARAMS: Final[Mapping[str, type[BatchedParams]]] = {
    "CREATE_INSTANCE": BatchCreate,
    "APPLY_EVENT": BatchApply,
    "DELETE_INSTANCE": BatchDelete,
}
RCPX_BATCH_PARAMS: Final[Mapping[str, type[BatchedParams]]] = {
    "CREATE_INSTANCE": CreateInstanceParams,
    "APPLY_EVENT": ApplyEventParams,
    "DELETE_INSTANCE": DeleteInstanceParams,
    "GET_INSTANCE": InstanceParams,
    "PING": NoParams,
}


def offset_of(given: int | str | None) -> int | None:
    """A position in the WAL, as a number or as text."""
    if given is None:
        return None
    number = int(given)
    if number > OFFSET_MAX:
        raise InvalidRequestError(f"an offset is at most {OFFSET_MAX}")
    return number


def batch_params(
    operation: BatchOperation | BatchOperationParams,
    index: int,
    kinds: Mapping[str, type[BatchedParams]] = BATCH_PARAMS,
) -> BatchedParams:
    """What one operation of a batch asks for, checked."""
    try:
        return msgspec.convert(operation.params or {}, kinds[operation.op])
    except msgspec.ValidationError as error:
        raise InvalidRequestError(
            f"operation {index} ({operation.op}) cannot be read: {error}",
            detail={"failed_index": index},
        ) from error
