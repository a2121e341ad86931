"""What the supervisor binds and makes before it forks, and its children inherit.

All of it stays open in the supervisor. So the connections that were queued for a gateway that died
are served by its successor, and gateways that connect while there is no sequencer are accepted by
the next one.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headwater.config.server import ServerSettings
from headwater.server.gateway_slots import GatewaySlots
from headwater.server.ports import BACKLOG, cannot_listen, tls_context

METRICS: Final = "metrics"
"""The sequencer listens there itself; gateways listen on all others."""


@dataclass(frozen=True, slots=True)
class Inheritance:
    ports: Mapping[str, int]
    """By name of the port."""
    listening: Mapping[str, list[list[socket.socket]]]
    """By name of the port, those of each gateway: one for each address of the host."""
    rendezvous: socket.socket
    """Where gateways connect to the sequencer."""
    slots: GatewaySlots
    tls: ssl.SSLContext | None
    alive: tuple[socket.socket, socket.socket]
    """A pair that nothing is sent over: the first end of it hears when the supervisor is gone."""
    metrics: list[socket.socket] = field(default_factory=list)

    @property
    def address(self) -> bytes:
        """Of the rendezvous."""
        name: bytes = self.rendezvous.getsockname()
        return name

    def keep_for_gateway(self, slot: int) -> dict[str, list[socket.socket]]:
        """Close in this process what belongs to the others."""
        self.alive[1].close()
        self.rendezvous.close()
        _close(self.metrics)
        for sockets in self.listening.values():
            for other, each in enumerate(sockets):
                if other != slot:
                    _close(each)
        return {name: sockets[slot] for name, sockets in self.listening.items()}

    def keep_for_sequencer(self) -> None:
        self.alive[1].close()
        self.stop_listening(keep_metrics=True)

    def stop_listening(self, *, keep_metrics: bool = False) -> None:
        """No further connection gets in through this process."""
        for sockets in self.listening.values():
            for each in sockets:
                _close(each)
        if not keep_metrics:
            _close(self.metrics)


def inherit(settings: ServerSettings, gateways: int) -> Inheritance:
    """Bind all ports, and refuse what cannot be before anything is started."""
    tls = tls_context(settings)
    wanted = {"http": settings.port, "rcpx": settings.rcpx_port, "kafka": settings.kafka_port}
    listening: dict[str, list[list[socket.socket]]] = {}
    ports: dict[str, int] = {}
    metrics: list[socket.socket] = []
    try:
        for name, port in wanted.items():
            if port is not None:
                listening[name] = _bind_for_all(name, settings.host, port, gateways)
                ports[name] = _port_of(listening[name][0])
        if settings.metrics_port is not None:
            metrics = _bind_for_all(METRICS, settings.host, settings.metrics_port, 1)[0]
            ports[METRICS] = _port_of(metrics)
    except BaseException:
        for sockets in listening.values():
            for each in sockets:
                _close(each)
        raise
    rendezvous = socket.socket(socket.AF_UNIX)
    rendezvous.bind("")  # the kernel finds a name that no file has
    rendezvous.listen(BACKLOG)
    slots = GatewaySlots.shared_with_children(gateways)
    return Inheritance(ports, listening, rendezvous, slots, tls, socket.socketpair(), metrics)


def _bind_for_all(name: str, host: str, port: int, count: int) -> list[list[socket.socket]]:
    """So many sockets on each address of the host, among which the kernel shares connections."""
    try:
        if port:
            _close(_bind(host, port, shares=False))  # else a port in use would be shared, too
        first = _bind(host, port, shares=True)
        rest = [_bind(host, _port_of(first), shares=True) for _ in range(count - 1)]
    except OSError as error:
        raise cannot_listen(name, host, port, error) from error
    return [first, *rest]


def _bind(host: str, port: int, *, shares: bool) -> list[socket.socket]:
    bound: list[socket.socket] = []
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, address in dict.fromkeys(found):
        opened = socket.socket(family, kind, protocol)
        bound.append(opened)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            opened.bind(address if port or len(bound) == 1 else (address[0], _port_of(bound)))
            if shares:
                opened.listen(BACKLOG)
        except OSError:
            _close(bound)
            raise
    return bound


def _port_of(sockets: list[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1])


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()
