"""Callers of state machines: a small RCPX client of our own making, and the published one.

Ours sends binary frames, one request at a time. `rstmdb` is not ours.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import rstmdb

from headwater.testing.torture.http_client import ANSWER_TIMEOUT_S, NoReplyError, NotSentError

_HEADER: Final = struct.Struct(">4sHHHII")
"""Magic, version, flags, bytes of an extension, bytes of the payload, CRC (0: none)."""
OPEN_CODES: Final = frozenset(("INTERNAL_ERROR", "WAL_IO_ERROR"))
"""After these it is unknown whether it was done."""


@dataclass(frozen=True, slots=True)
class MachineReply:
    is_ok: bool
    result: dict[str, Any]
    code: str = ""
    is_retryable: bool = False
    """As a full disk: nothing was done."""

    @property
    def is_refusal(self) -> bool:
        return not self.is_ok and (self.is_retryable or self.code not in OPEN_CODES)


class RcpxClient:
    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._number = 0

    def request(self, op: str, **params: Any) -> MachineReply:
        connection = self._connected()
        try:
            return self._request(connection, op, params)
        except (OSError, EOFError, ValueError, struct.error) as error:
            self.close()
            raise NoReplyError(f"{op}: {error!r}") from error

    def close(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            try:
                self._socket = socket.create_connection(
                    ("127.0.0.1", self._port), timeout=ANSWER_TIMEOUT_S
                )
                self._request(
                    self._socket, "HELLO", {"protocol_version": 1, "client_name": "torture"}
                )
            except (OSError, EOFError, ValueError, struct.error) as error:
                self.close()
                raise NotSentError(str(error)) from error
        return self._socket

    def _request(
        self, connection: socket.socket, op: str, params: Mapping[str, Any]
    ) -> MachineReply:
        self._number += 1
        number = str(self._number)
        content = json.dumps({"type": "request", "id": number, "op": op, "params": params}).encode()
        connection.sendall(_HEADER.pack(b"RCPX", 1, 0, 0, len(content), 0) + content)
        while True:
            _, _, _, extension, length, _ = _HEADER.unpack(self._read(connection, _HEADER.size))
            self._read(connection, extension)
            answer = json.loads(self._read(connection, length))
            if answer.get("id") == number:
                break
        if answer["status"] == "ok":
            return MachineReply(is_ok=True, result=answer["result"])
        error = answer["error"]
        return MachineReply(False, error, str(error["code"]), is_retryable=bool(error["retryable"]))

    @staticmethod
    def _read(connection: socket.socket, count: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < count:
            chunk = connection.recv(count - len(chunks))
            if not chunk:
                raise EOFError("the server hung up")
            chunks += chunk
        return bytes(chunks)


Work = Callable[[rstmdb.Client], Awaitable[Any]]


class PublishedCaller:
    """For one thread, which runs the client's loop while it waits."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._client: rstmdb.Client | None = None

    def create(self, identity: str, machine: str, context: dict[str, Any]) -> MachineReply:
        return self._request(lambda client: client.create_instance(machine, 1, identity, context))

    def apply(self, identity: str, params: Mapping[str, Any]) -> MachineReply:
        return self._request(lambda client: client.apply_event(identity, **params))

    def delete(self, identity: str) -> MachineReply:
        return self._request(lambda client: client.delete_instance(identity))

    def compact(self) -> MachineReply:
        return self._request(lambda client: client.compact())

    def close(self) -> None:
        self._leave()
        self._loop.close()

    def _request(self, work: Work) -> MachineReply:
        client = self._connected()
        try:
            self._loop.run_until_complete(asyncio.wait_for(work(client), ANSWER_TIMEOUT_S))
        except rstmdb.ServerError as error:
            return MachineReply(False, {"error": str(error)}, error.code.value)
        except (rstmdb.RstmdbError, OSError, EOFError, TimeoutError) as error:
            self._leave()
            raise NoReplyError(f"rstmdb: {error!r}") from error
        return MachineReply(is_ok=True, result={})

    def _connected(self) -> rstmdb.Client:
        if self._client is None:
            client = rstmdb.Client(port=self._port, request_timeout=ANSWER_TIMEOUT_S)
            try:
                self._loop.run_until_complete(client.connect())
            except (rstmdb.RstmdbError, OSError, EOFError, TimeoutError) as error:
                raise NotSentError(str(error)) from error
            self._client = client
        return self._client

    def _leave(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        try:
            self._loop.run_until_complete(asyncio.wait_for(client.close(), 5.0))
        except (rstmdb.RstmdbError, OSError, TimeoutError):
            return  # it was gone already
