"""A plain HTTP client of the standard library, that says what is known when something breaks.

It shares no code with `headwater.client`: it neither retries nor knows keys, so what it was told is
what the server said.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

ANSWER_TIMEOUT_S = 60.0
"""Longer than any pause of the server that the plan makes."""
UNANSWERED_STATUSES = frozenset((500, 503))
NOTHING_KEPT_CODES = frozenset(("not_ready", "shutting_down"))
"""Of 503: the request was not begun. Others, as a log that failed, leave it open."""


class NotSentError(Exception):
    """No server listened: nothing was done."""


class NoReplyError(Exception):
    """The request went out, and it is unknown whether it was carried out."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    status: int
    body: dict[str, Any]

    @property
    def is_ok(self) -> bool:
        return self.status < 300

    @property
    def code(self) -> str:
        error = self.body.get("error")
        return str(error.get("code")) if isinstance(error, dict) else ""

    @property
    def is_refusal(self) -> bool:
        """The answer promises that nothing was done."""
        if self.status in UNANSWERED_STATUSES:
            return self.code in NOTHING_KEPT_CODES
        return not self.is_ok


def topic_path(topic: str, verb: str = "") -> str:
    return f"/v0/topics/{quote(topic, safe=':')}{verb}"


class HttpClient:
    """One connection, opened when it is needed. For one thread."""

    def __init__(self, port: int, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpReply:
        connection = self._connected()
        content = None if body is None else json.dumps(body).encode()
        try:
            connection.request(
                method, path, content, {"content-type": "application/json", **(headers or {})}
            )
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoReplyError(f"{method} {path}: {error!r}") from error
        if response.will_close:
            self.close()
        try:
            parsed = json.loads(text) if text else {}
        except ValueError as error:
            raise NoReplyError(f"{method} {path}: {response.status} {text[:80]!r}") from error
        return HttpReply(response.status, parsed if isinstance(parsed, dict) else {"": parsed})

    def get(self, path: str) -> HttpReply:
        return self.request("GET", path)

    def post(self, path: str, body: Mapping[str, Any]) -> HttpReply:
        return self.request("POST", path, body)

    def put(self, path: str, body: Mapping[str, Any]) -> HttpReply:
        return self.request("PUT", path, body)

    def make(self, path: str, settings: Mapping[str, Any]) -> None:
        """What a life begins with: it must be there."""
        answer = self.put(path, settings)
        if not answer.is_ok:
            raise NoReplyError(f"{path} could not be made: {answer}")

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, self._timeout_s)
            try:
                connection.connect()
            except OSError as error:
                raise NotSentError(str(error)) from error
            self._connection = connection
        return self._connection
