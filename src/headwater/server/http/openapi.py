"""The OpenAPI document, made from the route table: what is served is what is described."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headwater.config.topic import TopicSettings
from headwater.core.limits import NAME_PATTERN, PARTITION_NAME_PATTERN, ROUTER_NAME_PATTERN
from headwater.server.http.exchange import Exchange
from headwater.server.http.route_table import Route, RouteTable
from headwater.wire.http_errors import STATUS_OF_CODE
from headwater.wire.openapi_page import DOCS_PAGE

_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "detail": {"type": "object"},
            },
        }
    },
}
_NAMES: Final[dict[str, dict[str, Any]]] = {
    "{topic}": {"pattern": f"^({NAME_PATTERN.pattern}|{PARTITION_NAME_PATTERN.pattern})$"},
    "{router}": {"pattern": f"^{ROUTER_NAME_PATTERN.pattern}$"},
}
ALWAYS: Final = ("invalid_request", "unauthorized", "forbidden", "throttled", "not_ready")


def openapi(table: RouteTable, exchange: Exchange) -> None:
    exchange.answer_json(200, msgspec.json.encode(openapi_document(table.routes)))


def docs(_table: RouteTable, exchange: Exchange) -> None:
    """The page that shows the document."""
    exchange.answer(
        200,
        DOCS_PAGE,
        {
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; "
            "script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'",
        },
    )


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    kinds: list[Any] = [route.body for route in routes if route.body is not None]
    kinds += [route.answer for route in routes if route.answer is not None]
    _, components = msgspec.json.schema_components(
        [*dict.fromkeys(kinds), TopicSettings], ref_template="#/components/schemas/{name}"
    )
    components["Error"] = _ERROR
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headwater", "version": "0", "description": "One durable event log."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}_{route.handler.__name__}_{len(route.parts)}",
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": _responses(route),
    }
    if route.is_open:
        operation["security"] = []
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        content = {"application/json": {"schema": schema}}
        needed = any(field.required for field in msgspec.structs.fields(route.body))
        operation["requestBody"] = {"required": needed, "content": content}
    elif route.takes_settings:
        schema = {"$ref": "#/components/schemas/TopicSettings"}
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": part[1:-1],
            "in": "path",
            "required": True,
            "schema": {"type": "string", **_NAMES.get(part, {"minLength": 1})},
        }
        for part in route.path.split("/")
        if part.startswith("{")
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": parameter.name,
            "in": "query",
            "description": parameter.meaning,
            "schema": {"type": parameter.kind},
        }
        for parameter in route.query
    ]


def _responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(status): {"description": meaning} for status, meaning in route.answers.items()
    }
    if route.answer is not None:
        schema = {"$ref": f"#/components/schemas/{route.answer.__name__}"}
        for good in responses.values():
            good["content"] = {"application/json": {"schema": schema}}
    codes = route.errors if route.is_open else (*ALWAYS, *route.errors)
    for code in codes:
        status = str(STATUS_OF_CODE[code])
        known = responses.get(status, {}).get("description")
        text = code if known is None else f"{known}, {code}"
        responses[status] = {
            "description": text,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
    return responses
