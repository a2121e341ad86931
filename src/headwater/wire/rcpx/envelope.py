"""What stands around every RCPX message: requests with a name, answers, pushed events.

Results are JSON bytes by the time they come here; they are put into their envelope, not printed
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headwater.wire.rcpx.frame import RcpxProtocolError

_encode = msgspec.json.Encoder().encode
EMPTY: Final = msgspec.Raw(b"{}")
ID_CHARACTERS_MAX: Final = 256


class Request(msgspec.Struct):
    """`params` is read by its operation."""

    op: str
    id: str | int = ""
    type: str = "request"
    params: msgspec.Raw = EMPTY


_requests = msgspec.json.Decoder(Request)


class EnvelopeError(RcpxProtocolError):
    """A message that is no request. The connection can go on; `request_id` is whose it was."""

    def __init__(self, message: str, request_id: bytes = b'""') -> None:
        super().__init__("BAD_REQUEST", message)
        self.request_id = request_id


def read_request(payload: bytes) -> Request:
    try:
        request = _requests.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EnvelopeError(f"not a request that can be read: {error}", _id_of(payload)) from error
    if request.type != "request":
        raise EnvelopeError("only messages of type request are taken", _encode(request.id))
    if isinstance(request.id, str) and len(request.id) > ID_CHARACTERS_MAX:
        raise EnvelopeError(f"an id has at most {ID_CHARACTERS_MAX} characters")
    return request


class _RequestName(msgspec.Struct):
    id: str | int = ""


_names = msgspec.json.Decoder(_RequestName)


def _id_of(payload: bytes) -> bytes:
    """Whose request could not be read, where that much can be."""
    try:
        return _encode(_names.decode(payload).id)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b'""'


def ok(request_id: bytes, result: bytes, server_time: bytes, wal_offset: int | None) -> bytes:
    """An answer. `request_id` and `result` are JSON, `server_time` the inside of a JSON text."""
    if wal_offset is None:
        return _OK % (request_id, result, server_time)
    return _OK_AT % (request_id, result, server_time, wal_offset)


_BEGINNING: Final = b'{"type":"response","id":%b,"status":"ok","result":%b,'
_OK: Final = _BEGINNING + b'"meta":{"server_time":"%b"}}'
_OK_AT: Final = _BEGINNING + b'"meta":{"server_time":"%b","wal_offset":%d}}'


def failed(
    request_id: bytes,
    code: str,
    text: str,
    *,
    retryable: bool,
    details: Mapping[str, Any] | None,
) -> bytes:
    return b'{"type":"response","id":%b,"status":"error","error":%b}' % (
        request_id,
        error_object(code, text, retryable=retryable, details=details),
    )


def error_object(
    code: str, text: str, *, retryable: bool, details: Mapping[str, Any] | None
) -> bytes:
    return _encode(
        {"code": code, "message": text, "retryable": retryable, "details": dict(details or {})}
    )


def event(subscription_id: bytes, body: bytes) -> bytes:
    """A pushed event: `told` is a JSON object with at least one field."""
    return b'{"type":"event","subscription_id":%b,%b' % (subscription_id, body[1:])
