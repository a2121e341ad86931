"""The calls about routers, and what they take together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from headwater.client.answers import decode
from headwater.client.calls import HttpCall
from headwater.client.operations import ClientOperation, RetryPolicy, call_operation
from headwater.core.json_text import json_text
from headwater.core.limits import PAGE_SIZE_MAX
from headwater.core.results import RouterState
from headwater.model.router import check_router_name


class _RoutersPage(msgspec.Struct):
    routers: list[RouterState]
    next_cursor: str | None = None


class _Removed(msgspec.Struct):
    deleted: bool


def _state(body: bytes) -> RouterState:
    return decode(body, RouterState)


def _page(body: bytes) -> _RoutersPage:
    return decode(body, _RoutersPage)


def _was_removed(body: bytes) -> bool:
    return decode(body, _Removed).deleted


def _nothing(_body: bytes) -> None:
    """The status said it all."""


def put_router(router: str, settings: Mapping[str, Any]) -> HttpCall[None]:
    body = json_text(dict(settings), "a router")
    return HttpCall("PUT", _path(router), _nothing, body=body)


def get_router(router: str) -> HttpCall[RouterState]:
    return HttpCall("GET", _path(router), _state)


def list_routers(
    prefix: str, source: str | None, dest: str | None, cursor: str | None
) -> HttpCall[_RoutersPage]:
    given = {"prefix": prefix, "source": source, "dest": dest, "cursor": cursor}
    query = {name: value for name, value in given.items() if value is not None}
    return HttpCall("GET", "/v0/routers", _page, query={**query, "page_size": str(PAGE_SIZE_MAX)})


def delete_router(router: str) -> HttpCall[bool]:
    return HttpCall("DELETE", _path(router), _was_removed)


def put_router_operation(
    router: str, settings: Mapping[str, Any], policy: RetryPolicy
) -> ClientOperation[RouterState]:
    yield from call_operation(put_router(router, settings), policy)
    return (yield from call_operation(get_router(router), policy))


def routers_operation(
    prefix: str, source: str | None, dest: str | None, policy: RetryPolicy
) -> ClientOperation[list[RouterState]]:
    states: list[RouterState] = []
    cursor: str | None = None
    while True:
        page = yield from call_operation(list_routers(prefix, source, dest, cursor), policy)
        states += page.routers
        cursor = page.next_cursor
        if cursor is None:
            return states


def _path(router: str) -> str:
    return f"/v0/routers/{quote(check_router_name(router), safe='')}"
