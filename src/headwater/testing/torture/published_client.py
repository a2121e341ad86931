"""The published client `rstmdb`, which is not ours, as one more caller of state machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import rstmdb

from headwater.testing.torture.http_client import ANSWER_TIMEOUT_S, NoReplyError, NotSentError
from headwater.testing.torture.machine_ledger import MACHINE
from headwater.testing.torture.rcpx_client import MachineReply

Work = Callable[[rstmdb.Client], Awaitable[Any]]


class PublishedCaller:
    """For one thread, which runs the client's loop while it waits."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._client: rstmdb.Client | None = None

    def create(self, identity: str) -> MachineReply:
        return self._request(lambda client: client.create_instance(MACHINE, 1, identity, {"n": 0}))

    def apply(self, identity: str, params: Mapping[str, Any]) -> MachineReply:
        return self._request(lambda client: client.apply_event(identity, **params))

    def batch(self, _operations: list[dict[str, Any]]) -> MachineReply:
        """It has none: those are refused here."""
        return MachineReply(False, {}, "BAD_REQUEST")

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
