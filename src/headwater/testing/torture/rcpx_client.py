"""A small RCPX client of our own making: binary frames, one request at a time."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

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
