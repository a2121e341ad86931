"""HTTP over a plain socket, byte by byte where a test wants that."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

PATIENCE_S = 20.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error, whose body has the shape that every error has."""
        found = self.json
        assert set(found) == {"error", "performance"}, found
        assert {"code", "message"} <= set(found["error"]) <= {"code", "message", "detail"}
        code: str = found["error"]["code"]
        return code


class RawHttp:
    """One connection. Requests can be sent whole, in pieces, or as raw bytes."""

    def __init__(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, key: str | None = None
    ) -> None:
        self._key = key
        plain = socket.create_connection((host, port), timeout=PATIENCE_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self._received = b""

    def __enter__(self) -> RawHttp:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- asking

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        self.send(self.request(method, path, body, headers))
        return self.answer(head_only=method == "HEAD")

    def request(
        self,
        method: str,
        path: str,
        body: bytes | str | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        if isinstance(body, Mapping):
            body = json.dumps(body)
        data = body.encode() if isinstance(body, str) else body
        fields = {"host": "test", **(headers or {})}
        if self._key is not None:
            fields.setdefault("authorization", f"Bearer {self._key}")
        if data is not None:
            fields.setdefault("content-length", str(len(data)))
            fields.setdefault("content-type", "application/json")
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + (data or b"")

    # -- the contract's calls

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def put(self, topic: str, **settings: Any) -> Answer:
        return self.ask("PUT", f"/v0/topics/{topic}", settings)

    def write(self, topic: str, *datas: Any, **fields: Any) -> Answer:
        records = [{"data": data} for data in datas]
        return self.ask("POST", f"/v0/topics/{topic}", {"records": records, **fields})

    def write_records(self, topic: str, *records: Mapping[str, Any], **fields: Any) -> Answer:
        return self.ask("POST", f"/v0/topics/{topic}", {"records": list(records), **fields})

    def diff(self, topic: str, from_seq: int = 0, **options: Any) -> Answer:
        return self.ask("POST", f"/v0/topics/{topic}/diff", {"from_seq": from_seq, **options})

    def queue(self, verb: str, topic: str, node: str = "w", **fields: Any) -> Answer:
        """claim, ack, nack or extend."""
        return self.ask("POST", f"/v0/topics/{topic}/{verb}", {"node": node, **fields})

    # -- hearing

    def more(self) -> bool:
        """Receive something. False at the end of the connection."""
        data = self.socket.recv(65536)
        self._received += data
        return bool(data)

    def line(self) -> bytes:
        while b"\r\n" not in self._received:
            if not self.more():
                raise ConnectionError(f"the connection ended after {self._received!r}")
        found, _, self._received = self._received.partition(b"\r\n")
        return found

    def take(self, size: int) -> bytes:
        while len(self._received) < size:
            if not self.more():
                raise ConnectionError("the connection ended in the middle of a body")
        found, self._received = self._received[:size], self._received[size:]
        return found

    def head(self) -> tuple[int, dict[str, str]]:
        version, status, *_ = self.line().split(b" ")
        assert version == b"HTTP/1.1", version
        headers: dict[str, str] = {}
        while line := self.line():
            name, _, value = line.decode("latin-1").partition(": ")
            assert name not in headers, f"{name} twice"
            headers[name] = value
        return int(status), headers

    def answer(self, *, head_only: bool = False) -> Answer:
        status, headers = self.head()
        if status == 100:
            return self.answer(head_only=head_only)
        size = 0 if head_only else int(headers["content-length"])
        return Answer(status, headers, self.take(size))

    def rest(self) -> bytes:
        """Everything until the other side closes."""
        while self.more():
            pass
        return self._received

    def is_closed(self) -> bool:
        """Wait for the other side to close; true when nothing came before that."""
        try:
            return not self.more()
        except ConnectionError:
            return True


@dataclass(frozen=True)
class Event:
    """One server-sent event. A comment has the kind ''."""

    kind: str
    data: Any
    id: str | None = None


class Events:
    """An open stream of server-sent events."""

    def __init__(
        self,
        connection: RawHttp,
        wid: str,
        last_event_id: str | None = None,
        *,
        path: str = "/v0/watch",
    ) -> None:
        self.connection = connection
        headers = {"accept": "text/event-stream"}
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
        connection.send(connection.request("GET", f"{path}/{wid}", headers=headers))
        self.status, self.headers = connection.head()

    def frame(self) -> list[str]:
        """The lines of the next frame."""
        connection = self.connection
        while b"\n\n" not in connection._received:
            if not connection.more():
                raise ConnectionError("the stream ended")
        frame, _, connection._received = connection._received.partition(b"\n\n")
        assert b"\r" not in frame
        return frame.decode().split("\n")

    def next(self) -> Event:
        kind, event_id, data = "", None, []
        lines = self.frame()
        for line in lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                event_id = value
            elif name == "data":
                data.append(value)
        if not data:
            return Event("", "\n".join(lines))
        return Event(kind, json.loads("\n".join(data)), event_id)

    def until(self, kind: str) -> list[Event]:
        """Events up to and with the next one of this kind; comments are left out."""
        found = []
        while True:
            event = self.next()
            if event.kind:
                found.append(event)
            if event.kind == kind:
                return found

    def records(self, count: int) -> list[Any]:
        """The next so many records, in the order they came."""
        found: list[Any] = []
        while len(found) < count:
            event = self.next()
            if event.kind == "record":
                found += event.data["records"]
        assert len(found) == count
        return found

    def __iter__(self) -> Iterator[Event]:
        while True:
            yield self.next()
