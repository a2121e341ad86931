"""The calls about routers, and what they take together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from headwater.client.answers import decode
from headwater.client.calls import Call
from headwater.client.steps import Manner, Steps, call_steps
from headwater.core.json_text import json_text
from headwater.core.limits import PAGE_SIZE_MAX
from headwater.engine.routers import RouterState
from headwater.model.router.definition import check_router_name


class _Page(msgspec.Struct):
    routers: list[RouterState]
    next_cursor: str | None = None


class _Removed(msgspec.Struct):
    deleted: bool


def _state(body: bytes) -> RouterState:
    return decode(body, RouterState)


def _page(body: bytes) -> _Page:
    return decode(body, _Page)


def _was_removed(body: bytes) -> bool:
    return decode(body, _Removed).deleted


def _nothing(_body: bytes) -> None:
    """The status said it all."""


def put_router(router: str, settings: Mapping[str, Any]) -> Call[None]:
    body = json_text(dict(settings), "a router")
    return Call("PUT", _path(router), _nothing, body=body)


def get_router(router: str) -> Call[RouterState]:
    return Call("GET", _path(router), _state)


def list_routers(
    prefix: str, source: str | None, dest: str | None, cursor: str | None
) -> Call[_Page]:
    given = {"prefix": prefix, "source": source, "dest": dest, "cursor": cursor}
    query = {name: value for name, value in given.items() if value is not None}
    return Call("GET", "/v0/routers", _page, query={**query, "page_size": str(PAGE_SIZE_MAX)})


def delete_router(router: str) -> Call[bool]:
    return Call("DELETE", _path(router), _was_removed)


def put_router_steps(
    router: str, settings: Mapping[str, Any], manner: Manner
) -> Steps[RouterState]:
    yield from call_steps(put_router(router, settings), manner)
    return (yield from call_steps(get_router(router), manner))


def routers_steps(
    prefix: str, source: str | None, dest: str | None, manner: Manner
) -> Steps[list[RouterState]]:
    states: list[RouterState] = []
    cursor: str | None = None
    while True:
        page = yield from call_steps(list_routers(prefix, source, dest, cursor), manner)
        states += page.routers
        cursor = page.next_cursor
        if cursor is None:
            return states


def _path(router: str) -> str:
    return f"/v0/routers/{quote(check_router_name(router), safe='')}"
