"""Requests and streams over httpx, for event loops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

from headwater.client.calls import HttpCall
from headwater.client.http.address import Address
from headwater.client.operations import HttpAnswer, Step
from headwater.client.watch import SILENCE_S, Follow, NextBytes, WatchStep

if TYPE_CHECKING:
    import httpx


class AsyncDoStep(Protocol):
    """How the client does a step that is about no stream."""

    async def __call__(self, step: Step, /) -> Any: ...


class AsyncStream:
    """An answer without end, read chunk by chunk."""

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


class AsyncOpenStream:
    """The one stream that a watch follows at a time, and the steps that are about it."""

    def __init__(self, http: AsyncHttp, do: AsyncDoStep) -> None:
        self._http = http
        self._do = do
        self._stream: AsyncStream | None = None

    async def do(self, step: WatchStep) -> Any:
        if isinstance(step, NextBytes):
            assert self._stream is not None
            return await self._stream.next_bytes()
        if isinstance(step, Follow):
            await self.close()
            answer, self._stream = await self._http.follow(step.call)
            return answer
        return await self._do(step)

    async def close(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.close()
