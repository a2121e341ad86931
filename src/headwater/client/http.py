"""HTTP for the clients: the only module that imports httpx.

Connections are kept and used again. Proxies named in the environment are not used: a log is near,
and a variable meant for browsers should not send its records elsewhere.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from headwater.client.calls import HttpCall
from headwater.client.errors import NoAnswerError, UnreachableError
from headwater.client.operations import HttpAnswer
from headwater.client.watch import SILENCE_S
from headwater.core.errors import AccessError, HeadwaterError, InvalidRequestError
from headwater.core.version import __version__

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S: Final = 5.0
CONNECTIONS_MAX: Final = 100
KEEP_ALIVE_S: Final = 30.0
"""Shorter than the server's own, so that a connection is not used while the server ends it."""


_ERRNO: Final = re.compile(r"^\[Errno -?\d+\] ")


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

        why = _ERRNO.sub("", f"{error}".strip().rstrip(".")) or type(error).__name__
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


class BlockingStream:
    """An answer without end, read piece by piece."""

    def __init__(self, address: Address, response: httpx.Response) -> None:
        self._address = address
        self._response = response
        self._chunks: Iterator[bytes] = response.iter_bytes()

    def next_bytes(self) -> bytes:
        import httpx

        try:
            return next(self._chunks, b"")
        except (httpx.TransportError, httpx.StreamError) as error:
            raise self._address.explain(error) from error

    def close(self) -> None:
        self._response.close()


class BlockingHttp:
    def __init__(self, address: Address) -> None:
        import httpx

        self._address = address
        self._http = httpx.Client(**address.options())

    def send(self, call: HttpCall[Any]) -> HttpAnswer:
        import httpx

        try:
            response = self._http.send(self._address.request(self._http, call))
        except httpx.TransportError as error:
            raise self._address.explain(error) from error
        return HttpAnswer(response.status_code, response.headers, response.content)

    def follow(self, call: HttpCall[bytes]) -> tuple[HttpAnswer, BlockingStream | None]:
        import httpx

        request = self._address.request(self._http, call, read_timeout_s=SILENCE_S)
        try:
            response = self._http.send(request, stream=True)
            if response.status_code != 200:
                body = response.read()
                return HttpAnswer(response.status_code, response.headers, body), None
        except httpx.TransportError as error:
            raise self._address.explain(error) from error
        stream = BlockingStream(self._address, response)
        return HttpAnswer(response.status_code, response.headers, b""), stream

    def close(self) -> None:
        self._http.close()


class AsyncStream:
    """The awaitable twin."""

    def __init__(self, address: Address, response: httpx.Response) -> None:
        self._address = address
        self._response = response
        self._chunks: AsyncIterator[bytes] = response.aiter_bytes()

    async def next_bytes(self) -> bytes:
        import httpx

        try:
            return await anext(self._chunks, b"")
        except (httpx.TransportError, httpx.StreamError) as error:
            raise self._address.explain(error) from error

    async def close(self) -> None:
        await self._response.aclose()


class AsyncHttp:
    def __init__(self, address: Address) -> None:
        import httpx

        self._address = address
        self._http = httpx.AsyncClient(**address.options())

    async def send(self, call: HttpCall[Any]) -> HttpAnswer:
        import httpx

        try:
            response = await self._http.send(self._address.request(self._http, call))
        except httpx.TransportError as error:
            raise self._address.explain(error) from error
        return HttpAnswer(response.status_code, response.headers, response.content)

    async def follow(self, call: HttpCall[bytes]) -> tuple[HttpAnswer, AsyncStream | None]:
        import httpx

        request = self._address.request(self._http, call, read_timeout_s=SILENCE_S)
        try:
            response = await self._http.send(request, stream=True)
            if response.status_code != 200:
                body = await response.aread()
                return HttpAnswer(response.status_code, response.headers, body), None
        except httpx.TransportError as error:
            raise self._address.explain(error) from error
        stream = AsyncStream(self._address, response)
        return HttpAnswer(response.status_code, response.headers, b""), stream

    async def close(self) -> None:
        await self._http.aclose()


class Poster:
    """Sends JSON to addresses that are not ours: webhooks. Their answers are not read."""

    def __init__(self, timeout_s: float) -> None:
        import httpx

        self._http = httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=timeout_s)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """The status; 0 and why when there was no answer."""
        import httpx

        try:
            request = self._http.build_request("POST", url, content=body, headers=dict(headers))
            response = await self._http.send(request, stream=True)
            await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return 0, _ERRNO.sub("", f"{error}".strip()) or type(error).__name__
        return response.status_code, response.reason_phrase

    async def close(self) -> None:
        await self._http.aclose()
