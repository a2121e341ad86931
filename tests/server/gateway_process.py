"""Gateways as real processes for a server that runs in a thread of the tests.

They are forked by a process that has everything loaded: one takes hundredths of a second.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import socket
from dataclasses import replace
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from typing import Any

import uvloop

from headwater.config.server import ServerSettings
from headwater.server.gateway.gateway import Gateway, GatewayPlan
from headwater.server.gateway.inheritance import Inheritance, inherit
from headwater.server.gateway_slots import GatewaySlots
from headwater.server.ports import connections_possible, tls_context

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.server.gateway_process"])
PATIENCE_S = 30.0


class SharedMemory:
    """Of processes that are not each other's children: it goes with a descriptor."""

    def __init__(self, size: int) -> None:
        self._descriptor = os.memfd_create("slots")
        os.truncate(self._descriptor, size)

    def __reduce__(self) -> Any:
        return _mapped, (DupFd(self._descriptor), os.fstat(self._descriptor).st_size)

    def map(self) -> mmap.mmap:
        return mmap.mmap(self._descriptor, 0)

    def close(self) -> None:
        os.close(self._descriptor)


def _mapped(descriptor: Any, size: int) -> mmap.mmap:
    return mmap.mmap(descriptor.detach(), size)


class GatewayProcesses:
    """What a supervisor has, without a sequencer: that is the test's own server."""

    def __init__(self, settings: ServerSettings, gateways: int) -> None:
        self._memory = SharedMemory(GatewaySlots.size_of(gateways))
        self.inherited: Inheritance = replace(
            inherit(settings, gateways), slots=GatewaySlots(self._memory.map())
        )
        self._settings = settings
        self.processes = [self._start(slot) for slot in range(gateways)]

    def _start(self, slot: int) -> BaseProcess:
        inherited = self.inherited
        listening = {name: sockets[slot] for name, sockets in inherited.listening.items()}
        process = _forks.Process(
            target=_run_gateway,
            args=(
                self._settings,
                slot,
                listening,
                inherited.address,
                self._memory,
                inherited.alive[0],
            ),
            daemon=True,
        )
        process.start()
        return process

    def stop(self) -> None:
        """As a supervisor does: no more connections, and what is under way is finished."""
        self.inherited.stop_listening()
        for process in self.processes:
            process.terminate()

    def join(self) -> None:
        for process in self.processes:
            process.join(PATIENCE_S)
            assert process.exitcode == 0, f"a gateway ended with {process.exitcode}"
        for end in self.inherited.alive:
            end.close()
        self.inherited.rendezvous.close()
        self._memory.close()


def _run_gateway(
    settings: ServerSettings,
    slot: int,
    listening: dict[str, list[socket.socket]],
    address: bytes,
    memory: mmap.mmap,
    alive: socket.socket,
) -> None:
    connections_max = min(settings.limits.connections, connections_possible())
    slots, tls = GatewaySlots(memory), tls_context(settings)
    plan = GatewayPlan(settings, slot, listening, address, slots, tls, alive, connections_max)
    uvloop.run(_serve(plan))


async def _serve(plan: GatewayPlan) -> None:
    await Gateway(plan).run()
