"""From a request to its handler: the route, what its key may do, and the first step of the work."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from urllib.parse import parse_qsl

from headwater.core.errors import ClosedError, HeadwaterError
from headwater.server.access.access import Access
from headwater.server.access.keys import Scope
from headwater.server.backend import Backend
from headwater.server.http.endpoint import HttpEndpoint
from headwater.server.http.exchange import Exchange
from headwater.server.http.request_head import Head
from headwater.server.http.route_table import Route, RouteTable
from headwater.server.http.write_batcher import has_plain_head
from headwater.wire.http_errors import HttpError


class Dispatcher:
    def __init__(
        self,
        endpoint: HttpEndpoint,
        backend: Backend,
        access: Access,
        routes: RouteTable,
        take_plain_write: Callable[[Exchange], bool],
        upgrade: Callable[[Exchange, bytes], None],
    ) -> None:
        """`take_plain_write`: false for one that has to go by itself. `upgrade`: to WebSocket."""
        self.endpoint = endpoint
        self._backend = backend
        self._access = access
        self._routes = routes
        self._take_plain_write = take_plain_write
        self._upgrade = upgrade
        self._request_numbers = itertools.count(1)

    @property
    def draining(self) -> bool:
        return self._backend.draining

    @property
    def has_room(self) -> bool:
        return True

    def handle(self, exchange: Exchange) -> None:
        """Route a request, check its key, let its handler begin. Never raises."""
        exchange.number = next(self._request_numbers)
        head = exchange.head
        if head.is_plain_write and not self._backend.draining and self._take_plain_write(exchange):
            return
        if head.route is None and self._routes.is_late(head.path):
            exchange.spawn(self._load_route(exchange))
        else:
            self._begin(exchange)

    async def _load_route(self, exchange: Exchange) -> None:
        await self._routes.load(exchange.head.path)
        exchange.on_gone = None  # its handler says what ends with the client
        self._begin(exchange)

    def _begin(self, exchange: Exchange) -> None:
        head, draining = exchange.head, self._backend.draining
        try:
            route = head.route or self._admit(head)
            if draining and not route.is_open:
                raise ClosedError("shutting down; nothing was done")
        except HeadwaterError as error:
            exchange.fail(error)
        except Exception as error:
            exchange.broken(error)
        else:
            exchange.attempt(route.handler)

    def _admit(self, head: Head) -> Route:
        """Find the route of a head and check its key. An admission stays: keys do not change while
        the server runs."""
        access = self._access
        route, head.parameters = self._routes.find(head.method, head.path)
        if not route.is_open:
            authorization = head.headers.get(b"authorization")
            if authorization is None and route.takes_token:
                authorization = token_of(head.query_bytes)
            head.key = key = access.keys.find(authorization)
            head.usage = access.quotas.of(key)
            if not len(access.keys):
                access.sites.check(head.headers, takes_proof=route.changes_by_get)
            if route.scope is not Scope.NONE:
                key.require(route.scope)
            if route.names_topic:
                key.require_name(head.parameters[0])
        head.route = route
        head.is_plain_write = route.goes_beside and has_plain_head(head)
        return route

    def goes_beside(self, head: Head) -> bool:
        """Whether it need not wait for those before it on its connection."""
        try:
            route = head.route or self._routes.find(head.method, head.path)[0]
        except HeadwaterError:
            return False
        return route.goes_beside

    def upgrade(self, exchange: Exchange, rest: bytes) -> None:
        try:
            if self._admit(exchange.head).path != "/v0/ws":
                raise HttpError("not_found", "this path does not speak WebSocket")
            if self._backend.draining:
                raise ClosedError("shutting down; nothing was done")
            self._upgrade(exchange, rest)
        except HeadwaterError as error:
            exchange.keep_alive = False
            exchange.fail(error)
        except Exception as error:
            exchange.keep_alive = False
            exchange.broken(error)


def token_of(query: bytes) -> bytes | None:
    """The key of a request whose headers a browser does not let a page set."""
    token = dict(parse_qsl(query)).get(b"token")
    return None if token is None else b"Bearer " + token
