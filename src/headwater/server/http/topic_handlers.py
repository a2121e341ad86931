"""Topics over HTTP: create, get, list, delete from, drop."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from headwater.config.topic import TopicType, check_topic_name
from headwater.core import limits
from headwater.core.errors import InvalidRequestError
from headwater.core.results import TopicState
from headwater.engine.partition import Partition
from headwater.engine.queues.claims import Queues
from headwater.engine.state.topic import Topic
from headwater.engine.topics.operations import create_operation, delete_operation, drop_operation
from headwater.model.scheduler import base_priority
from headwater.server.access.keys import ApiKey, Scope
from headwater.server.backend import Backend, refuse_partitions
from headwater.server.http.exchange import Exchange, body_of
from headwater.server.http.operation import HttpOperation
from headwater.wire.requests import DeleteRequest, decode_request

NAMES_SCANNED_MAX = 20_000
"""Names that one page of a list scans: a search with few matches goes on with the next page."""
_TYPES = frozenset(each.value for each in TopicType)
_WHOLE = re.compile(r"-?[0-9]{1,18}")


def answer(exchange: Exchange, status: int, body: dict[str, Any], **performance: float) -> None:
    """A JSON object with its performance block."""
    body["performance"] = {"server_total_ms": round(exchange.elapsed_ms(), 3), **performance}
    exchange.answer_json(status, msgspec.json.encode(body))


def flag(exchange: Exchange, name: str, default: bool) -> bool:
    """A yes-or-no query parameter."""
    value = exchange.query().get(name)
    if value is None:
        return default
    if value.lower() in ("", "1", "true", "yes"):
        return True
    if value.lower() in ("0", "false", "no"):
        return False
    raise InvalidRequestError(f"{name} must be true or false")


def number(exchange: Exchange, name: str, default: int, low: int, high: int) -> int:
    """A whole query parameter, clamped."""
    value = exchange.query().get(name)
    if value is None:
        return default
    if _WHOLE.fullmatch(value) is None:
        raise InvalidRequestError(f"{name} must be a whole number")
    return min(max(int(value), low), high)


def list_cursor(exchange: Exchange, is_name: re.Pattern[str], prefix: str = "") -> str | None:
    """`next_cursor` of the page before: the last name that page scanned."""
    cursor = exchange.query().get("cursor")
    if not cursor:
        return None
    if is_name.fullmatch(cursor) is None or not cursor.startswith(prefix):
        raise InvalidRequestError("cursor is no next_cursor of this list")
    return cursor


def require_named(backend: Backend, key: ApiKey, settings: Mapping[str, Any] | None) -> None:
    """Settings that come with a write: to give them takes what it takes to change them, and a key
    may name in them only what it may name in a path, and make there."""
    if settings:
        key.require(Scope.OWN)
    name = (settings or {}).get("dead_letter")
    if isinstance(name, str):
        key.require_name(name)
        kafkas = backend.kafkas(name, key)
        if kafkas is not None:
            kafkas.refuse_taken(name)


def describe(backend: Backend, topic: Partition) -> dict[str, Any]:
    """A topic as GET shows it."""
    state: dict[str, Any] = msgspec.structs.asdict(topic.state())
    settings = topic.settings
    state["effective_priority"] = base_priority(
        settings.priority,
        settings.auto_priority,
        topic.last_read_ts,
        backend.engine.core.clock.wall_ms(),
    )
    if isinstance(topic, Topic) and settings.type is TopicType.QUEUE:
        stats = Queues(backend.engine).glance(topic)
        state["queue"] = stats._asdict()
        if stats.blocked and topic.queue is not None:
            state["queue"]["blocked_reason"] = topic.queue.blocked_reason
    return {name: value for name, value in state.items() if value is not None}


def put_topic(backend: Backend, exchange: Exchange) -> None:
    name = exchange.parameters[0]
    body = body_of(exchange)
    try:
        settings = msgspec.json.decode(body or b"{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequestError(f"the body must be an object of settings: {error}") from error
    require_named(backend, exchange.key, settings)
    kafkas = backend.kafkas(name, exchange.head.key)
    if kafkas is not None:
        kafkas.refuse_new(name)
    existed = backend.engine.find(name) is not None

    def answer_state(state: TopicState) -> None:
        body = {"topic": name, "created": not existed, "config": state.config}
        answer(exchange, 200 if existed else 201, body)

    operation = create_operation(backend.engine, name, settings)
    HttpOperation(backend, exchange, operation, answer_state).begin()


def get_topic(backend: Backend, exchange: Exchange) -> None:
    topic = backend.space(exchange.parameters[0], exchange.head.key).topic(exchange.parameters[0])
    if flag(exchange, "touch", True):
        topic.touch(backend.engine.core.clock.wall_ms())
    answer(exchange, 200, describe(backend, topic))


def list_topics(backend: Backend, exchange: Exchange) -> None:
    query = exchange.query()
    size = number(exchange, "page_size", limits.PAGE_SIZE_DEFAULT, 1, limits.PAGE_SIZE_MAX)
    key, prefix = exchange.key, query.get("prefix", "")
    contains, kind = query.get("contains", ""), query.get("type")
    if kind is not None and kind not in _TYPES:
        raise InvalidRequestError("type is log or queue")
    page: list[Partition] = []
    next_cursor: str | None = None
    space = (
        backend.space(prefix, key) if prefix.startswith(limits.PARTITION_PREFIX) else backend.engine
    )
    is_name = limits.PARTITION_NAME_PATTERN if space is not backend.engine else limits.NAME_PATTERN
    listed = space.listed(prefix, list_cursor(exchange, is_name, prefix))
    for scanned, topic in enumerate(listed, start=1):
        name = topic.name
        if contains in name and key.may_name(name) and kind in (None, topic.settings.type.value):
            if len(page) == size:
                next_cursor = page[-1].name
                break
            page.append(topic)
        if scanned >= NAMES_SCANNED_MAX:
            next_cursor = name
            break
    if flag(exchange, "touch", False):
        for topic in page:
            topic.touch(backend.engine.core.clock.wall_ms())
    body: dict[str, Any] = {"topics": [describe(backend, topic) for topic in page]}
    if next_cursor is not None:
        body["next_cursor"] = next_cursor
    answer(exchange, 200, body)


async def drop_topic(backend: Backend, exchange: Exchange) -> None:
    name = check_topic_name(exchange.parameters[0])
    refuse_partitions(name, "drop the topic with a Kafka client")
    operation = drop_operation(backend.engine, name, if_empty=flag(exchange, "if_empty", False))
    removed = await backend.ready_database.drive(operation)
    routers = list(filter(exchange.key.may_name, removed or []))
    body = {"topic": name, "deleted": removed is not None, "routers_removed": routers}
    answer(exchange, 200, body)


async def delete_records(backend: Backend, exchange: Exchange) -> None:
    request = decode_request(body_of(exchange), DeleteRequest)
    name = exchange.parameters[0]
    space = backend.space(name, exchange.head.key)
    operation = delete_operation(space, name, request.before_seq, request.match)
    deleted = await backend.ready_database.drive(operation)
    answer(exchange, 200, {"topic": name, **msgspec.structs.asdict(deleted)})
