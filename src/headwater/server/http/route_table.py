"""From method and path to a route. The table is data; the OpenAPI document is made from it too."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
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
        self._by_length: dict[int, list[tuple[tuple[str | None, ...], Route]]] = {}
        self._add(routes)
        self._remembered: dict[tuple[bytes, bytes], tuple[Route, tuple[str, ...]]] = {}

    @property
    def routes(self) -> Sequence[Route]:
        """All of them: those that are late are loaded."""
        self._load(lambda _late: True)
        return self._routes

    def _load(self, is_wanted: Callable[[LateRoutes], bool]) -> None:
        for late in [each for each in self._late if is_wanted(each)]:
            self._add(late.load())
            self._late.remove(late)

    def _add(self, routes: Sequence[Route]) -> None:
        self._routes += routes
        for route in routes:
            bound = replace(route, handler=partial(route.handler, self._services[route.served_by]))
            self._by_length.setdefault(len(bound.parts), []).append((bound.parts, bound))

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
        if self._late:
            begins = {"/" + segments[0], "/" + "/".join(segments[:2])}
            self._load(lambda late: not begins.isdisjoint(late.beginnings))
        allowed = []
        for parts, route in self._fitting(segments):
            if route.method == method or (method == "HEAD" and route.method == "GET"):
                params = tuple(s for p, s in zip(parts, segments, strict=True) if p is None)
                return route, params
            allowed.append(route.method)
        if allowed:
            raise HttpError(
                "method_not_allowed",
                f"{method} is not allowed here",
                headers={"allow": ", ".join(sorted(set(allowed)))},
            )
        raise HttpError("not_found", "there is nothing at this path")

    def _fitting(self, segments: list[str]) -> list[tuple[tuple[str | None, ...], Route]]:
        """The routes of this path. One that is written out in full wins over a parameter."""
        fitting = [
            (parts, route)
            for parts, route in self._by_length.get(len(segments), ())
            if all(p is None or p == s for p, s in zip(parts, segments, strict=True))
        ]
        return [each for each in fitting if None not in each[0]] or fitting
