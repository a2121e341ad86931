"""APPLY_EVENT over RCPX, which is most of what is ever asked: read at once, gathered with those of
other connections, answered without a step in between.

What this does not read goes the way of all operations, and is refused there in their words.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from headwater.api.machine_requests import ApplyEvent, Sees
from headwater.core.errors import HeadwaterError
from headwater.engine.machines.answers import Applied
from headwater.engine.machines.event_batcher import PendingEvent
from headwater.engine.machines.responses import applied
from headwater.server.machines.operations import event_request, full_request, own_answer, sees_of
from headwater.server.rcpx.caller import RcpxCaller
from headwater.wire.machine_requests import ApplyEventParams
from headwater.wire.rcpx import ID_CHARACTERS_MAX

OPERATION: Final = "APPLY_EVENT"
_NAMED: Final = b'"APPLY_EVENT"'
_encode = msgspec.json.Encoder().encode


class _EventRequest(msgspec.Struct):
    """A request and its params, read together. What others leave out must be here."""

    op: Literal["APPLY_EVENT"]
    params: ApplyEventParams
    id: str | int = ""
    type: Literal["request"] = "request"


_decode = msgspec.json.Decoder(_EventRequest).decode


class RcpxEvent(PendingEvent):
    """An event, and the connection that waits for its answer."""

    __slots__ = ("_connection", "_request_id", "_usage")

    def __init__(
        self, connection: RcpxCaller, request_id: bytes, request: ApplyEvent, sees: Sees | None
    ) -> None:
        self.request = request
        self.sees = sees
        self._connection = connection
        self._request_id = request_id
        self._usage = connection.usage
        self._usage.begin()
        connection.under_way += 1

    def succeed(self, answer: Applied) -> None:
        connection, response = self._connection, applied(answer)
        self._usage.end()
        connection.ended()
        try:
            if connection.key is not None:
                response = own_answer(connection.key, response)
            connection.answer(self._request_id, _encode(response), answer.wal_offset)
        except Exception as error:
            connection.broken(self._request_id, error)

    def fail(self, error: Exception) -> None:
        connection = self._connection
        self._usage.end()
        connection.ended()
        if isinstance(error, HeadwaterError):
            connection.fail(self._request_id, error)
        else:
            connection.broken(self._request_id, error)


def take_event(connection: RcpxCaller, payload: bytes) -> bool:
    """Begin an event; False when these bytes are to be handled like any others.

    The key was admitted for this operation by the general way before.
    """
    if _NAMED not in payload or OPERATION not in connection.granted:
        return False
    backend = connection.endpoint.backend
    store = backend.engine.machines.store
    if store is None or backend.draining:
        return False
    try:
        request = _decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    name = request.id
    if type(name) is str and len(name) > ID_CHARACTERS_MAX:
        return False
    key, params = connection.key, request.params
    assert key is not None
    event = full_request(store, key, event_request(params.instance_id, params))
    store.submit_event(RcpxEvent(connection, _encode(name), event, sees_of(key)))
    return True
