# Generated from client/http/async_transport.py by "make twins"; change that file, not this one.
"""Requests and streams over httpx, for threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from headwater.client.calls import HttpCall
from headwater.client.http.address import Address
from headwater.client.operations import HttpAnswer, Step
from headwater.client.watch import SILENCE_S, Follow, NextBytes, WatchStep

if TYPE_CHECKING:
    import httpx


class DoStep(Protocol):
    """How the client does a step that is about no stream."""

    def __call__(self, step: Step, /) -> Any: ...


class BlockingStream:
    """An answer without end, read chunk by chunk."""

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


class OpenStream:
    """The one stream that a watch follows at a time, and the steps that are about it."""

    def __init__(self, http: BlockingHttp, do: DoStep) -> None:
        self._http = http
        self._do = do
        self._stream: BlockingStream | None = None

    def do(self, step: WatchStep) -> Any:
        if isinstance(step, NextBytes):
            assert self._stream is not None
            return self._stream.next_bytes()
        if isinstance(step, Follow):
            self.close()
            answer, self._stream = self._http.follow(step.call)
            return answer
        return self._do(step)

    def close(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.close()
