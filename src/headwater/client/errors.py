"""From a server's answer back to the error it stands for: the same classes as embedded.

What only a client can meet is declared here: a server that cannot be reached, an answer that never
came, a key without the right, an answer from another kind of server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headwater.core.errors import (
    BatchTooLargeError,
    ClosedError,
    DiskFullError,
    HeadConflictError,
    HeadwaterError,
    InvalidRequestError,
    InvariantError,
    NotAQueueError,
    OverloadedError,
    RecordTooLargeError,
    RequestError,
    RouterCycleError,
    RouterNotFoundError,
    StorageError,
    TopicExistsIncompatibleError,
    TopicFullError,
    TopicNotEmptyError,
    TopicNotFoundError,
    UnavailableError,
)
from headwater.model.machines.errors import CODES, MachineError


class UnauthorizedError(RequestError):
    """The server wants a key, or does not know this one."""

    code = "unauthorized"


class ForbiddenError(RequestError):
    """The key is known and may not do that."""

    code = "forbidden"


class PayloadTooLargeError(RequestError):
    """The request is larger than the server takes."""

    code = "payload_too_large"


class UnreachableError(UnavailableError):
    """No connection: the request was never sent, so nothing was done."""

    code = "unreachable"


class NoAnswerError(UnavailableError):
    """The request was sent and no answer came, or a server with workers says that it lost it. It
    may or may not have been carried out."""

    code = "no_answer"


class UnexpectedAnswerError(HeadwaterError):
    """The answer is not one of the contract: a proxy or another kind of server sent it."""

    code = "unexpected_answer"
    exit_code = 2


REQUEST_ERRORS: Final[dict[str, type[RequestError]]] = {
    kind.code: kind
    for kind in (
        InvalidRequestError,
        BatchTooLargeError,
        RecordTooLargeError,
        TopicNotFoundError,
        TopicExistsIncompatibleError,
        TopicNotEmptyError,
        TopicFullError,
        HeadConflictError,
        NotAQueueError,
        RouterCycleError,
        RouterNotFoundError,
        UnauthorizedError,
        ForbiddenError,
        PayloadTooLargeError,
    )
}
LATER_ERRORS: Final[dict[str, type[UnavailableError]]] = {
    kind.code: kind
    for kind in (UnavailableError, OverloadedError, DiskFullError, ClosedError, NoAnswerError)
}
RETRY_AFTER_MS_DEFAULT: Final = 1_000


class _ErrorBody(msgspec.Struct):
    code: str
    message: str
    detail: dict[str, Any] | None = None


class _Answer(msgspec.Struct):
    error: _ErrorBody


_decoder = msgspec.json.Decoder(_Answer)


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> HeadwaterError:
    """The error an answer stands for. Never fails, whatever the answer is."""
    try:
        answer = _decoder.decode(body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _foreign(status, headers)
    return error_for(answer.code, answer.message, answer.detail, status=status, headers=headers)


def error_for(
    code: str,
    message: str,
    detail: Mapping[str, Any] | None = None,
    *,
    status: int = 400,
    headers: Mapping[str, str] | None = None,
) -> HeadwaterError:
    """The error a code stands for. A code from a newer server keeps its branch by its status."""
    if code in CODES:
        return MachineError(code, message, details=detail)
    request = REQUEST_ERRORS.get(code)
    if request is not None:
        return request(message, detail=detail)
    later = LATER_ERRORS.get(code)
    if later is not None:
        return later(message, retry_after_ms(headers or {}), detail=detail)
    if code == StorageError.code:
        return StorageError(message)
    if code == InvariantError.code:
        return InvariantError(message)
    error: HeadwaterError
    if status == 429 or status >= 502:
        error = UnavailableError(message, retry_after_ms(headers or {}), detail=detail)
    else:
        error = RequestError(message, detail=detail)
    error.code = code
    return error


def retry_after_ms(headers: Mapping[str, str]) -> int:
    """What the server asks for. A date, which we never send, counts as nothing asked."""
    text = headers.get("retry-after", "").strip()
    return int(text) * 1_000 if text.isdigit() else RETRY_AFTER_MS_DEFAULT


def _foreign(status: int, headers: Mapping[str, str]) -> HeadwaterError:
    if status in (429, 502, 503, 504):  # a proxy whose server is away
        return UnavailableError(
            f"something between here and the server answered {status}", retry_after_ms(headers)
        )
    return UnexpectedAnswerError(
        f"this does not look like a Headwater server: it answered {status}; check the address"
    )
