"""One request, with its body as text, and its answer. Answers leave a connection in the order of
the requests."""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import parse_qsl

from headwater.core.errors import HeadwaterError, InvalidRequestError
from headwater.core.units import KIB, MIB
from headwater.server.access.keys import own_error
from headwater.server.failures import logged, unforeseen
from headwater.wire.http_errors import HttpError, error_body, error_headers, status_of
from headwater.wire.http_response import answer_head, header_lines, json_answer, short_json_answer

if TYPE_CHECKING:
    from headwater.config.server import LimitSettings
    from headwater.server.access.keys import ApiKey
    from headwater.server.access.quotas import Usage
    from headwater.server.http.endpoint import HttpEndpoint
    from headwater.server.http.request_head import Head
    from headwater.server.intake import Reading
    from headwater.wire.page import Piece


GZIP_BYTES_MIN: Final = 1_400
"""Shorter answers fit a packet anyway."""
NOT_FOUND: Final = 404
NOT_MODIFIED: Final = 304
_GZIP: Final = re.compile(rb"\s*(gzip|\*)\s*(;\s*q=(1(\.0*)?|0\.0*[1-9]\d*))?\s*")


Part = bytes | memoryview
Parts = tuple[Part, ...]
"""An answer that need not be put together."""
JOINED_BYTES_MAX: Final = 64 * KIB
"""More is sent from where its parts lie: copying them together takes longer than that."""
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_STEP_BYTES: Final = 256 * 1024
_HARMLESS_BYTES: Final = 8 * MIB
"""Records that are much alike pack very well; up to here, however well, they are taken."""


def write_parts(transport: asyncio.Transport, parts: Sequence[Part]) -> None:
    if len(parts) == 1:
        transport.write(parts[0])
    elif sum(map(len, parts)) <= JOINED_BYTES_MAX:
        transport.write(b"".join(parts))
    else:
        transport.writelines(parts)


class HttpCaller(Protocol):
    """What a request, and the handler that answers it, need of the connection it came on."""

    upgraded: asyncio.Protocol | None
    on_resumed: Callable[[], None] | None

    @property
    def transport(self) -> asyncio.Transport: ...

    @property
    def reading(self) -> Reading: ...

    @property
    def paused(self) -> bool: ...

    @property
    def is_gone(self) -> bool: ...

    @property
    def reads_files(self) -> bool:
        """It prints records from their files itself."""

    @property
    def endpoint(self) -> HttpEndpoint: ...

    @property
    def is_waiting(self) -> bool: ...

    @property
    def takes_direct_answer(self) -> bool: ...

    def answer_ready(self) -> None: ...

    def answered(self, now_us: int) -> None: ...

    def send(self, data: bytes) -> None: ...

    def hold_back(self, held_back: bool) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


class RequestTaker(Protocol):
    """What a parsed request is handed to: the `Dispatcher`, or what forwards it to one."""

    @property
    def endpoint(self) -> HttpEndpoint: ...

    @property
    def draining(self) -> bool: ...

    @property
    def has_room(self) -> bool:
        """For more than it was handed."""

    def handle(self, exchange: Exchange) -> None: ...

    def goes_beside(self, head: Head) -> bool: ...

    def upgrade(self, exchange: Exchange, rest: bytes) -> None: ...


class Exchange:
    """Defaults stand in the class: an exchange lives for a millisecond and sets few of them."""

    keep_alive = True
    number = 0
    """Counts the requests of this server; 0 for one that could not be read."""
    streaming = False
    is_slow = False
    """Waits for more than the log: those behind it on the connection begin after it."""
    waits_for_event = False
    """Is answered when something happens, not when something is done."""
    on_gone: Callable[[], None] | None = None
    """Told when the connection ended before the answer did."""
    page: Sequence[Piece] | None = None
    """The answer, where the connection puts it together."""
    _ready: bytes | Parts | None = None
    _begun = False

    def __init__(
        self, connection: HttpCaller, head: Head, body: bytes | bytearray, started_us: int
    ) -> None:
        self.connection = connection
        self.head = head
        self.body = body
        self.started_us = started_us
        if not head.keep_alive:
            self.keep_alive = False

    # -- what was asked

    @property
    def method(self) -> bytes:
        return self.head.method

    @property
    def path(self) -> bytes:
        return self.head.path

    @property
    def query_bytes(self) -> bytes:
        return self.head.query_bytes

    @property
    def headers(self) -> dict[bytes, bytes]:
        return self.head.headers

    @property
    def parameters(self) -> tuple[str, ...]:
        return self.head.parameters

    @property
    def key(self) -> ApiKey:
        """That was let in."""
        key = self.head.key
        assert key is not None, "let in first"
        return key

    @property
    def usage(self) -> Usage:
        """Of the key that was let in."""
        usage = self.head.usage
        assert usage is not None, "let in first"
        return usage

    @property
    def limits(self) -> LimitSettings:
        return self.connection.endpoint.limits

    @property
    def request_id(self) -> str:
        return f"{self.connection.endpoint.request_prefix.decode()}-{self.number:x}"

    def query(self) -> Mapping[str, str]:
        """Query parameters; the last one of a name wins."""
        head = self.head
        if head.query is None:
            try:
                text = head.query_bytes.decode("ascii")
                head.query = dict(
                    parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=50)
                )
            except (UnicodeDecodeError, ValueError) as error:
                raise InvalidRequestError("the query cannot be read") from error
        return head.query

    def header(self, name: bytes) -> str | None:
        """A header as text: UTF-8 if it can be, since clients send what they type."""
        value = self.headers.get(name)
        if value is None:
            return None
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value.decode("latin-1")

    def elapsed_ms(self) -> float:
        return (self.connection.endpoint.now_us() - self.started_us) / 1_000

    @property
    def takes_gzip(self) -> bool:
        head = self.head
        if head.takes_gzip is None:
            offers = head.headers.get(b"accept-encoding", b"").lower().split(b",")
            head.takes_gzip = any(_GZIP.fullmatch(offer) is not None for offer in offers)
        return head.takes_gzip

    # -- the work

    def attempt(self, handler: Callable[[Exchange], Coroutine[Any, Any, None] | None]) -> None:
        """Let a handler begin. What goes wrong is its answer."""
        try:
            work = handler(self)
            if work is not None:
                self.spawn(work)
        except HeadwaterError as error:
            self.fail(error)
        except Exception as error:
            self.broken(error)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what cannot be answered at once. Not used by the write path."""
        self.is_slow = True
        tasks = self.connection.endpoint.tasks
        task = asyncio.get_running_loop().create_task(self._run(work))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        if self.on_gone is None:
            self.on_gone = partial(_cancel, task)  # the client is gone

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except HeadwaterError as error:
            self.fail(error)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.broken(error)

    def broken(self, error: Exception) -> None:
        """An unforeseen error."""
        failure = unforeseen(
            self.connection.endpoint.log,
            "request failed",
            error,
            request_id=self.request_id,
            method=self.head.method.decode("latin-1"),
        )
        if self.is_answered:
            self.connection.close()  # a stream cannot be repaired half-way
        else:
            self.fail(failure)

    def not_written(self, error: HeadwaterError) -> None:
        """The log's refusal."""
        log = self.connection.endpoint.log
        self.fail(logged(log, "a write failed", error, request_id=self.request_id))

    # -- the answer

    def answer_json(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        extra = header_lines(headers) if headers else b""
        if len(body) >= GZIP_BYTES_MIN and self.takes_gzip:
            body = gzip.compress(body, 1)
            extra += b"content-encoding: gzip\r\nvary: accept-encoding\r\n"
        if self.number:
            extra += self._request_id_line()
        answer = json_answer(status, body, self.keep_alive, extra)
        self._ready = answer[: len(answer) - len(body)] if self.head.method == b"HEAD" else answer
        self.connection.answer_ready()

    def answer_whole(self, reply: bytes) -> None:
        """A good answer with its head, to a POST that is kept alive, too short to be packed."""
        self._ready = reply
        self.connection.answer_ready()

    @property
    def takes_short_answer(self) -> bool:
        return self.keep_alive and self.number > 0 and self.head.method == b"POST"

    def answer_short(self, body: bytes) -> None:
        """A good answer to a POST that is kept alive and has a number, too short to be packed."""
        self.answer_whole(
            short_json_answer(body, self.connection.endpoint.request_prefix, self.number)
        )

    def answer_json_parts(self, *parts: bytes) -> None:
        """A good answer that is put together once, with its head: for long ones."""
        length = sum(map(len, parts))
        if self.head.method == b"HEAD" or (length >= GZIP_BYTES_MIN and self.takes_gzip):
            self.answer_json(200, b"".join(parts))
            return
        extra = self._request_id_line() if self.number else b""
        head = json_answer(200, b"", self.keep_alive, extra, length=length)
        self._ready = (head, *parts)
        self.connection.answer_ready()

    def _request_id_line(self) -> bytes:
        return b"x-request-id: %b-%x\r\n" % (self.connection.endpoint.request_prefix, self.number)

    def answer_page(self, *pieces: Piece) -> None:
        """The same with records that lie in files, for a connection that reads them."""
        texts = tuple(piece for piece in pieces if isinstance(piece, bytes))
        if len(texts) == len(pieces):
            self.answer_json_parts(*texts)
            return
        self.page, self._ready = pieces, b""
        self.connection.answer_ready()

    def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Any other whole answer. A HEAD request gets its headers only."""
        all_headers = dict(headers)
        if status != NOT_MODIFIED:  # its length would be that of what is known already
            all_headers["content-length"] = str(len(body))
        if self.number:
            all_headers["x-request-id"] = self.request_id
        head = answer_head(status, all_headers, self.keep_alive)
        self._ready = head if self.method == b"HEAD" else head + body
        self.connection.answer_ready()

    def answer_parts(self, status: int, parts: Sequence[Part], headers: Mapping[str, str]) -> None:
        """The same for a long answer that was never put together, and need not be."""
        if self.method == b"HEAD":
            self.answer(status, b"".join(parts), headers)
            return
        all_headers = {**headers, "content-length": str(sum(map(len, parts)))}
        if self.number:
            all_headers["x-request-id"] = self.request_id
        self._ready = (answer_head(status, all_headers, self.keep_alive), *parts)
        self.connection.answer_ready()

    def fail(self, error: HeadwaterError) -> None:
        if isinstance(error, HttpError) and error.status in (408, 413, 431):
            self.keep_alive = False  # the rest of the request is not worth reading
        error = own_error(self.head.key, error)
        status = status_of(error)
        if status == NOT_FOUND and not error.detail:
            error.detail = {"path": self.path.decode("latin-1")}
        self.answer_json(status, error_body(error, self.elapsed_ms()), error_headers(error))

    def begin_stream(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of an answer without end. What follows goes through `connection.send`."""
        self.begin_printed(answer_head(status, headers, keep_alive=False))

    def begin_printed(self, head: bytes) -> None:
        """The same with a head that was printed by another process."""
        self.streaming = self.waits_for_event = True
        self.keep_alive = False
        self._ready = head
        self.connection.answer_ready()

    def hand_over(self) -> None:
        """Something else speaks on this connection from now on."""
        self.streaming = self._begun = True
        self._ready = b""

    def take(self) -> bytes | Parts | None:
        """The answer when it is there; for the connection. A stream begins once."""
        if self._begun:
            return b""
        self._begun = self.streaming
        return self._ready

    @property
    def is_answered(self) -> bool:
        return self._ready is not None


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def body_of(exchange: Exchange) -> bytes | bytearray:
    """The body as JSON text, unpacked. A bomb is refused while it grows, not after."""
    body = exchange.body
    if exchange.head.is_plain_json and body.isascii():
        return body
    kind = exchange.headers.get(b"content-type")
    if kind is not None and body and kind.partition(b";")[0].strip().lower() != b"application/json":
        raise HttpError(
            "unsupported_media_type",
            "send application/json (with curl: --json, or -H 'content-type: application/json')",
        )
    encoding = exchange.headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
        body = _unpacked(exchange, encoding.strip().lower())
    if not body.isascii():
        try:
            body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidRequestError("the body is not valid UTF-8") from error
    return body


def _unpacked(exchange: Exchange, encoding: bytes) -> bytes:
    if encoding != b"gzip":
        raise HttpError("unsupported_media_type", "bodies may be packed with gzip only")
    limits = exchange.limits
    most = min(limits.body_bytes, max(_HARMLESS_BYTES, len(exchange.body) * limits.expansion_ratio))
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    chunks: list[bytes] = []
    size = 0
    try:
        rest: bytes = bytes(exchange.body)
        while not unpacker.eof:
            chunk = unpacker.decompress(rest, _STEP_BYTES)
            if not chunk and not rest:
                break  # all of it was read, and it is not the end
            size += len(chunk)
            if size > most:
                raise HttpError("payload_too_large", f"the body unpacks to over {most} bytes")
            chunks.append(chunk)
            rest = unpacker.unconsumed_tail
    except zlib.error as error:
        raise InvalidRequestError("the body is not gzip") from error
    if not unpacker.eof:
        raise InvalidRequestError("the packed body ends too early")
    if unpacker.unused_data:
        raise InvalidRequestError("something follows the packed body")
    return b"".join(chunks)
