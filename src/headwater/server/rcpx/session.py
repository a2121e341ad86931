"""HELLO, AUTH, PING, BYE: getting to know each other."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec

from headwater.core.errors import InvalidRequestError
from headwater.core.version import __version__
from headwater.server.access.keys import ApiKey, Scope
from headwater.server.rcpx.caller import RcpxCaller
from headwater.server.rcpx.runner import Result
from headwater.wire.http_errors import HttpError
from headwater.wire.machine_requests import (
    BATCH_OPERATIONS_MAX,
    LIST_LIMIT_MAX,
    AuthParams,
    HelloParams,
    NoParams,
)
from headwater.wire.rcpx.frame import PAYLOAD_BYTES_MAX, VERSION, RcpxProtocolError, WireMode

FEATURES: Final = (
    "idempotency", "batch", "atomic_batch", "watch", "watch_from_offset", "wal_read", "compaction",
    "ttl", "migrate", "history",
)  # fmt: skip
_encode = msgspec.json.Encoder().encode
_SCOPES: Final = {
    "read": Scope.READ,
    "write": Scope.WRITE,
    "delete": Scope.DELETE,
    "owner": Scope.OWN,
    "admin": Scope.ADMIN,
}


def hello(connection: RcpxCaller, params: HelloParams) -> Result:
    if params.protocol_version != VERSION:
        raise RcpxProtocolError(
            "UNSUPPORTED_PROTOCOL",
            f"protocol version {params.protocol_version}; this server speaks {VERSION}",
        )
    mode = _agreed_mode(connection.mode, params.wire_modes)
    connection.greet(params.client_name[:128])
    body: dict[str, Any] = {
        "protocol_version": VERSION,
        "wire_mode": mode.value,
        "server_name": "headwater",
        "server_version": __version__,
        "auth_required": connection.key is None,
        "features": FEATURES,
        "limits": {
            "max_frame_size": PAYLOAD_BYTES_MAX,
            "max_instances_per_list": LIST_LIMIT_MAX,
            "max_batch_operations": BATCH_OPERATIONS_MAX,
            "max_requests_under_way": connection.endpoint.limits.pipeline,
        },
    }
    return Result(_encode(body), then=partial(connection.change_mode, mode))


def _agreed_mode(spoken: WireMode | None, offered: list[str]) -> WireMode:
    """The one that is spoken already if the client offers it, else its first that is known."""
    spoken = spoken or WireMode.FRAMES
    if not offered or spoken.value in offered:
        return spoken
    known = {mode.value: mode for mode in WireMode}
    for name in offered:
        if name in known:
            return known[name]
    raise RcpxProtocolError(
        "UNSUPPORTED_PROTOCOL", f"none of the wire modes is known; known are: {', '.join(known)}"
    )


def auth(connection: RcpxCaller, params: AuthParams) -> Result:
    if params.method != "bearer":
        raise InvalidRequestError("the only method is bearer, with the secret of an API key")
    try:
        key = connection.endpoint.access.keys.find_secret(params.token.encode("utf-8", "replace"))
    except HttpError as error:
        raise RcpxProtocolError("AUTH_FAILED", str(error)) from error
    connection.admit(key)
    return Result(_encode({"authenticated": True, "permissions": _permissions(key)}))


def _permissions(key: ApiKey) -> list[str]:
    return [name for name, scope in _SCOPES.items() if scope in key.scopes]


def ping(_connection: RcpxCaller, _params: NoParams) -> Result:
    return Result(b'{"pong":true}')


def bye(connection: RcpxCaller, _params: NoParams) -> Result:
    return Result(b'{"goodbye":true}', then=connection.say_goodbye)
