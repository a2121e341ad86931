"""Where a server is, what every request to it carries, and what a failure means."""

from __future__ import annotations

import re
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

from headwater.client.calls import HttpCall
from headwater.client.errors import NoAnswerError, UnreachableError
from headwater.core.errors import AccessError, HeadwaterError, InvalidRequestError
from headwater.core.version import __version__

CONNECT_TIMEOUT_S: Final = 5.0
CONNECTIONS_MAX: Final = 100
KEEP_ALIVE_S: Final = 30.0
"""Shorter than the server's own, so that a connection is not used while the server ends it."""


_ERRNO: Final = re.compile(r"^\[Errno -?\d+\] ")


def cause_of(error: Exception) -> str:
    """In words, without the number that the system gave it."""
    return _ERRNO.sub("", f"{error}".strip().rstrip(".")) or type(error).__name__


class Address:
    """Where the server is, and what every request carries."""

    def __init__(
        self, url: str, token: str | None, timeout_s: float, ca_file: str | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequestError(
                f"the address of a server is like http://127.0.0.1:4000, not {url!r}"
            )
        if parts.username or parts.password or parts.query or parts.fragment:
            raise InvalidRequestError("the address of a server has no user, query or fragment")
        if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
            raise InvalidRequestError("the token has characters that no key has")
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self._secure = parts.scheme == "https"
        self._token = token
        self._ca_file = ca_file

    def __repr__(self) -> str:
        return self.url

    def options(self) -> dict[str, Any]:
        """For httpx's clients."""
        import httpx

        headers = {
            "user-agent": f"headwater-python/{__version__}",
            "accept-encoding": "identity",
        }
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        return {
            "headers": headers,
            "trust_env": False,
            "timeout": httpx.Timeout(self.timeout_s, connect=CONNECT_TIMEOUT_S),
            "limits": httpx.Limits(
                max_connections=CONNECTIONS_MAX,
                max_keepalive_connections=CONNECTIONS_MAX,
                keepalive_expiry=KEEP_ALIVE_S,
            ),
            "verify": self._trust(),
        }

    def _trust(self) -> ssl.SSLContext | bool:
        if not self._secure:
            return False  # nothing to verify; reading the certificates takes a while
        try:
            return ssl.create_default_context(cafile=self._ca_file)
        except (OSError, ssl.SSLError) as error:
            raise AccessError(
                f"cannot use the certificates ({error})", path=self._ca_file
            ) from error

    def request(
        self, http: Any, call: HttpCall[Any], *, read_timeout_s: float | None = None
    ) -> Any:
        import httpx

        read_s = self.timeout_s + call.wait_s if read_timeout_s is None else read_timeout_s
        headers = dict(call.headers)
        if call.body is not None:
            headers["content-type"] = "application/json"
        return http.build_request(
            call.method,
            self.url + call.path,
            params=dict(call.query) or None,
            content=call.body,
            headers=headers,
            timeout=httpx.Timeout(self.timeout_s, connect=CONNECT_TIMEOUT_S, read=read_s),
        )

    def explain(self, error: Exception) -> HeadwaterError:
        """Was it sent, or not? That decides whether it may be sent again."""
        import httpx

        why = cause_of(error)
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
            if "WRONG_VERSION_NUMBER" in why:
                plain = self.url.replace("https://", "http://", 1)
                return InvalidRequestError(f"{self.url} does not speak TLS; try {plain}")
            if isinstance(error.__cause__, ssl.SSLError) or "CERTIFICATE" in why:
                return InvalidRequestError(f"{self.url} cannot be trusted: {why}")
            return UnreachableError(
                f"cannot reach {self.url} ({why[:1].lower()}{why[1:]}); is the server running?"
            )
        if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
            return InvalidRequestError(f"the request cannot be sent: {why}")
        return NoAnswerError(
            f"no answer from {self.url} ({why[:1].lower()}{why[1:]}); "
            "it may or may not have been carried out"
        )
