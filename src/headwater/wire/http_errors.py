"""What each error code is in HTTP. A total table: a test walks every code there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headwater.core.errors import HeadwaterError, UnavailableError

STATUS_OF_CODE: Final[dict[str, int]] = {
    "invalid_request": 400,
    "batch_too_large": 400,
    "record_too_large": 413,
    "unauthorized": 401,
    "forbidden": 403,
    "topic_not_found": 404,
    "router_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "request_timeout": 408,
    "router_cycle": 409,
    "topic_exists_incompatible": 409,
    "topic_not_empty": 409,
    "not_a_queue": 409,
    "head_conflict": 409,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "topic_full": 422,
    "upgrade_required": 426,
    "throttled": 429,
    "headers_too_large": 431,
    "internal": 500,
    "not_ready": 503,
    "no_answer": 503,
    "shutting_down": 503,
    "storage_failed": 503,
    "disk_full": 507,
    # State machines, by the names their clients know.
    "BAD_REQUEST": 400,
    "NOT_FOUND": 404,
    "MACHINE_NOT_FOUND": 404,
    "INSTANCE_NOT_FOUND": 404,
    "MACHINE_VERSION_EXISTS": 409,
    "INSTANCE_EXISTS": 409,
    "INVALID_TRANSITION": 409,
    "GUARD_FAILED": 409,
    "CONFLICT": 409,
    "MACHINE_VERSION_LIMIT_EXCEEDED": 422,
}

REASON: Final[dict[int, bytes]] = {
    100: b"Continue",
    101: b"Switching Protocols",
    200: b"OK",
    201: b"Created",
    304: b"Not Modified",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    408: b"Request Timeout",
    409: b"Conflict",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    422: b"Unprocessable Content",
    426: b"Upgrade Required",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
    507: b"Insufficient Storage",
}


class HttpError(HeadwaterError):
    """An answer that is an error, made on the HTTP side: wrong path, method, key, media type."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        detail: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.detail = dict(detail) if detail else None
        self.headers = dict(headers or {})

    @property
    def status(self) -> int:
        return STATUS_OF_CODE[self.code]


def no_answer() -> HttpError:
    """The process that had the request is gone. 503 `not_ready` would say that nothing was done."""
    return HttpError(
        "no_answer",
        "the server ended before it answered and starts again; this may or may not have been "
        "carried out",
        headers={"retry-after": "1"},
    )


def status_of(error: HeadwaterError) -> int:
    return STATUS_OF_CODE[error.code]


def error_body(error: HeadwaterError, server_total_ms: float) -> bytes:
    body: dict[str, Any] = {"code": error.code, "message": str(error)}
    detail = getattr(error, "detail", None)
    if detail:
        body["detail"] = detail
    return msgspec.json.encode(
        {"error": body, "performance": {"server_total_ms": round(server_total_ms, 3)}}
    )


def error_headers(error: HeadwaterError) -> dict[str, str]:
    """Retry-After in whole seconds for what may work later, and what the error itself asks for."""
    headers = dict(getattr(error, "headers", {}) or {})
    if isinstance(error, UnavailableError):
        headers.setdefault("retry-after", str(max(1, -(-error.retry_after_ms // 1000))))
    return headers
