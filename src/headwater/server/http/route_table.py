"""From method and path to a route. The table is data; the OpenAPI document is made from it too."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from headwater.server.access.keys import Scope
from headwater.server.backend import Backend
from headwater.wire.http_errors import HttpError
from headwater.wire.requests import Body

Handler = Callable[..., Coroutine[Any, Any, None] | None]
"""Of the service that its route names, and of the exchange; once bound, of the exchange alone."""
_Shape = tuple[bool, ...]
"""Of each segment of a path whether a parameter stands there."""
_REMEMBERED_MAX: Final = 4_096
_REMEMBERED_BYTES_MAX: Final = 320


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter."""

    name: str
    kind: str
    meaning: str


TOKEN: Final = Parameter("token", "string", "the key, where no header can be set")


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    handler: Handler
    summary: str
    scope: Scope = Scope.NONE
    body: type[Body] | None = None
    query: tuple[Parameter, ...] = ()
    answers: dict[int, str] = field(default_factory=lambda: {200: "done"})
    answer: type[msgspec.Struct] | None = None
    """What a good answer says, for the document."""
    errors: tuple[str, ...] = ()
    names_topic: bool = False
    """The first path parameter is a name that a key's prefixes apply to."""
    takes_settings: bool = False
    """The body is a topic's settings."""
    takes_token: bool = False
    """The key may stand in the query: for streams, which browsers open without headers."""
    changes_by_get: bool = False
    """A GET that changes something: browsers have to show that no page of another site sent it."""
    goes_beside: bool = False
    """On one connection it may be begun before others of its kind are answered."""
    is_open: bool = False
    """Needs no key, whatever the settings."""
    served_by: type = Backend
    """The service that its handler gets: as much of the server as it needs."""

    @property
    def parts(self) -> tuple[str | None, ...]:
        """The segments of the path; None where a parameter stands."""
        return tuple(None if p.startswith("{") else p for p in self.path.split("/")[1:])


class LateRoutes(NamedTuple):
    """Routes that are loaded when a request comes whose path begins so."""

    beginnings: tuple[str, ...]
    """Of one segment, or of two."""
    load: Callable[[], tuple[Route, ...]]

    def may_have(self, path: bytes) -> bool:
        segments = path.decode("latin-1").split("/")
        return any("/".join(segments[:count]) in self.beginnings for count in (2, 3))


class RouteTable:
    def __init__(
        self,
        routes: Sequence[Route],
        services: Mapping[type, object],
        late: Sequence[LateRoutes] = (),
    ) -> None:
        self._services = {**services, RouteTable: self}
        self._routes: list[Route] = []
        self._late = list(late)
        self._by_shape: dict[_Shape, dict[tuple[str, ...], list[Route]]] = {}
        """By where parameters stand, then by what is written between them."""
        self._shapes: dict[int, list[_Shape]] = {}
        """By their length; the one without parameters first."""
        self._add(routes)
        self._remembered: dict[tuple[bytes, bytes], tuple[Route, tuple[str, ...]]] = {}

    @property
    def routes(self) -> Sequence[Route]:
        """All of them: those that are late are loaded."""
        for late in list(self._late):
            self._take(late, late.load())
        return self._routes

    def is_late(self, path: bytes) -> bool:
        return any(late.may_have(path) for late in self._late)

    async def load(self, path: bytes) -> None:
        """In another thread: what comes with some routes takes a tenth of a second."""
        loop = asyncio.get_running_loop()
        for late in [each for each in self._late if each.may_have(path)]:
            self._take(late, await loop.run_in_executor(None, late.load))

    def _take(self, late: LateRoutes, routes: Sequence[Route]) -> None:
        if late in self._late:  # two may have waited for them
            self._add(routes)
            self._late.remove(late)

    def _add(self, routes: Sequence[Route]) -> None:
        self._routes += routes
        for route in routes:
            bound = replace(route, handler=partial(route.handler, self._services[route.served_by]))
            shape = tuple(part is None for part in bound.parts)
            written = tuple(part for part in bound.parts if part is not None)
            self._by_shape.setdefault(shape, {}).setdefault(written, []).append(bound)
        self._shapes = {}
        for shape in sorted(self._by_shape, key=sum):
            self._shapes.setdefault(len(shape), []).append(shape)

    def find(self, method: bytes, path: bytes) -> tuple[Route, tuple[str, ...]]:
        """The route and its path parameters, or 404 or 405."""
        known = self._remembered.get((method, path))
        if known is not None:
            return known
        route = self._search(method.decode("latin-1"), path)
        if len(path) <= _REMEMBERED_BYTES_MAX:
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[method, path] = route
        return route

    def _search(self, method: str, path: bytes) -> tuple[Route, tuple[str, ...]]:
        try:
            segments = [unquote(s, errors="strict") for s in path.decode("ascii").split("/")[1:]]
        except UnicodeDecodeError as error:
            raise HttpError("not_found", "the path is not text") from error
        allowed = []
        for shape, route in self._fitting(segments):
            if route.method == method or (method == "HEAD" and route.method == "GET"):
                return route, tuple(itertools.compress(segments, shape))
            allowed.append(route.method)
        if allowed:
            raise HttpError(
                "method_not_allowed",
                f"{method} is not allowed here",
                headers={"allow": ", ".join(sorted(set(allowed)))},
            )
        raise HttpError("not_found", "there is nothing at this path")

    def _fitting(self, segments: list[str]) -> Iterator[tuple[_Shape, Route]]:
        """The routes of this path. One that is written out in full wins over a parameter."""
        for shape in self._shapes.get(len(segments), ()):
            written = tuple([s for s, is_open in zip(segments, shape, strict=True) if not is_open])
            routes = self._by_shape[shape].get(written)
            if routes is not None:
                yield from zip(itertools.repeat(shape), routes, strict=False)
                if not any(shape):
                    return
