"""Routers over HTTP: define, get, list, remove.

A router goes on copying when no client is connected, so to make or remove one is the owner's, who
may name both its ends.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from headwater.core import limits
from headwater.core.errors import (
    HeadwaterError,
    InvalidRequestError,
    RouterCycleError,
    TopicExistsIncompatibleError,
)
from headwater.core.results import RouterState
from headwater.engine.routers.operations import delete_router_operation, put_router_operation
from headwater.engine.state.topic import Router
from headwater.model.router import check_router_name
from headwater.server.access.keys import ApiKey
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange, body_of
from headwater.server.http.topic_handlers import answer, list_cursor, number
from headwater.wire.requests import RouterBody, decode_request

_NO_ROUTERS = "routers are between topics of Headwater's own"
_PROGRESS = ("source_seq", "lag", "held", "forwarded_total")


def describe(state: RouterState) -> dict[str, Any]:
    """A router as GET shows it."""
    shown: dict[str, Any] = msgspec.structs.asdict(state)
    return shown


async def put_router(backend: Backend, exchange: Exchange) -> None:
    name = check_router_name(exchange.parameters[0])
    body = decode_request(body_of(exchange), RouterBody)
    key = exchange.key
    key.require_name(body.source)
    key.require_name(body.dest)
    for end in (body.source, body.dest):
        kafkas = backend.kafkas(end, key)
        if kafkas is not None and end == body.dest and body.create_dest:
            kafkas.refuse_taken(end)
        backend.refuse_kafkas(end, key, InvalidRequestError, _NO_ROUTERS)
    settings = msgspec.to_builtins(body)
    try:
        operation = put_router_operation(backend.engine, name, settings)
        state, created = await backend.ready_database.drive(operation)
    except (RouterCycleError, TopicExistsIncompatibleError) as error:
        raise _without_others(key, error) from error
    made = describe(state)
    for progress in _PROGRESS:
        del made[progress]
    answer(exchange, 201 if created else 200, {**made, "created": created})


def _without_others(
    key: ApiKey, error: RouterCycleError | TopicExistsIncompatibleError
) -> HeadwaterError:
    """The same, without names that the key may not know: routers of others are in the way."""
    detail = error.detail or {}
    named = detail.get("path") or [detail.get("source") or ""]
    if all(not name or key.may_name(name) for name in named):
        return error
    known = {part: value for part, value in detail.items() if part not in ("path", "source")}
    return type(error)("a router that this key may not see is in the way", detail=known)


def get_router(backend: Backend, exchange: Exchange) -> None:
    router = backend.engine.routers.get(exchange.parameters[0])
    _require_ends(exchange.key, router)
    answer(exchange, 200, describe(backend.engine.routers.state(router)))


def list_routers(backend: Backend, exchange: Exchange) -> None:
    query = exchange.query()
    size = number(exchange, "page_size", limits.PAGE_SIZE_DEFAULT, 1, limits.PAGE_SIZE_MAX)
    key, routers = exchange.key, backend.engine.routers
    prefix = query.get("prefix", "")
    cursor = list_cursor(exchange, limits.ROUTER_NAME_PATTERN, prefix)
    wanted = (prefix, query.get("source"), query.get("dest"), cursor)
    visible = (router for router in routers.list(*wanted) if _may_see(key, router))
    page = list(itertools.islice(visible, size + 1))
    body: dict[str, Any] = {"routers": [describe(routers.state(each)) for each in page[:size]]}
    if len(page) > size:
        body["next_cursor"] = page[size - 1].name
    answer(exchange, 200, body)


async def delete_router(backend: Backend, exchange: Exchange) -> None:
    name = check_router_name(exchange.parameters[0])
    router = backend.engine.core.routers.find(name)
    if router is not None:
        _require_ends(exchange.key, router)
    deleted = await backend.ready_database.drive(delete_router_operation(backend.engine, name))
    answer(exchange, 200, {"deleted": deleted})


def _require_ends(key: ApiKey, router: Router) -> None:
    key.require_name(router.settings.source)
    key.require_name(router.settings.dest)


def _may_see(key: ApiKey, router: Router) -> bool:
    settings = router.settings
    return all(map(key.may_name, (router.name, settings.source, settings.dest)))
