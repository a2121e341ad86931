"""Kafka topics and consumer groups over HTTP, for the dashboard and for people."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from headwater.core import limits
from headwater.engine.kafka.topics import TOPIC_NAME
from headwater.engine.state.damage import Part
from headwater.format.kafka.names import partition_name
from headwater.server.access.keys import ApiKey, Scope
from headwater.server.http.exchange import Exchange
from headwater.server.http.route_table import Parameter, Route
from headwater.server.http.topic_handlers import answer, list_cursor, number
from headwater.server.kafka.group_offsets import committed_of
from headwater.server.kafka.listener import KafkaListener, KafkaListing
from headwater.wire.http_errors import HttpError
from headwater.wire.status_answers import KafkaGroupList, KafkaTopicList

if TYPE_CHECKING:
    from headwater.engine.kafka.coordinator import GroupListing
    from headwater.engine.kafka.partition import KafkaTopic
    from headwater.server.kafka.endpoint import KafkaEndpoint


def _opened(kafka: KafkaListing) -> KafkaListener:
    """With neither store nor endpoint: no client of Kafka has come yet, so there is nothing."""
    backend, listener = kafka
    if backend.database is not None:
        backend.engine.core.parts.require(Part.KAFKA)
        if listener.store is None and listener.port is None:
            raise HttpError(
                "not_found", "this server has no Kafka topics; it runs without that port"
            )
    assert backend.ready_database is not None  # 503 while recovering
    return listener


def list_topics(kafka: KafkaListing, exchange: Exchange) -> None:
    """Topics of the key's organisation, with where each partition begins and ends."""
    key, size, after = exchange.key, _page_size(exchange), list_cursor(exchange, TOPIC_NAME)
    store = _opened(kafka).store
    every = () if store is None else store.topics(key.organisation)
    seen = sorted(
        (
            each
            for each in every
            if (after is None or each.name > after) and may_see(key, each.name)
        ),
        key=lambda topic: topic.name,
    )
    body: dict[str, Any] = {"topics": [_topic(each) for each in seen[:size]]}
    if len(seen) > size:
        body["next_cursor"] = seen[size - 1].name
    answer(exchange, 200, body)


def list_groups(kafka: KafkaListing, exchange: Exchange) -> None:
    """Consumer groups of the key's organisation, and how far they are behind."""
    key, size = exchange.key, _page_size(exchange)
    after = exchange.query().get("cursor")  # any text may be the name of a group
    endpoint = _opened(kafka).endpoint
    if endpoint is None:
        answer(exchange, 200, {"groups": []})
        return
    groups_seen = sorted(
        group
        for group in endpoint.coordinator.groups(key.organisation)
        if (after is None or group.name > after) and _may_see_group(endpoint, key, group.name)
    )
    groups = [_group(endpoint, key, group) for group in groups_seen[:size]]
    body: dict[str, Any] = {"groups": groups}
    if len(groups_seen) > size:
        body["next_cursor"] = groups_seen[size - 1].name
    answer(exchange, 200, body)


def _page_size(exchange: Exchange) -> int:
    return number(exchange, "page_size", limits.PAGE_SIZE_MAX, 1, limits.PAGE_SIZE_MAX)


def may_see(key: ApiKey, topic: str) -> bool:
    """Prefixes of a key are about names as every protocol has them."""
    return key.may_name(partition_name(topic, 0))


def _may_see_group(endpoint: KafkaEndpoint, key: ApiKey, group: str) -> bool:
    """With prefixes: one that has read a topic of the key's own. Names of groups have none."""
    return not key.prefixes or any(
        may_see(key, topic) for topic, _ in committed_of(endpoint, key.organisation, group)
    )


def _topic(topic: KafkaTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": str(uuid.UUID(bytes=topic.topic_id)),
        "config": dict(topic.configs),
        "partitions": [
            {
                "partition": index,
                "start_offset": partition.log_start_offset,
                "high_watermark": partition.high_watermark,
                "bytes": partition.bytes,
            }
            for index, partition in enumerate(topic.partitions)
        ],
    }


def _group(endpoint: KafkaEndpoint, key: ApiKey, group: GroupListing) -> dict[str, Any]:
    rows = [
        row for row in offsets_of(endpoint, key.organisation, group.name) if may_see(key, row[0])
    ]
    return {
        "group": group.name,
        "state": group.phase.value,
        "members": group.members,
        "lag": sum(lag for _, _, _, lag in rows),
        "offsets": [
            {"topic": topic, "partition": partition, "offset": offset, "lag": lag}
            for topic, partition, offset, lag in rows
        ],
    }


def offsets_of(
    endpoint: KafkaEndpoint, organisation: int, group: str
) -> Iterator[tuple[str, int, int, int]]:
    """Topic, partition, committed offset and lag. What was removed unread is no lag."""
    for (name, index), committed in sorted(committed_of(endpoint, organisation, group).items()):
        topic = endpoint.store.topic(organisation, name)
        if topic is not None and index < len(topic.partitions):
            partition = topic.partitions[index]
            begin = max(committed.offset, partition.log_start_offset)
            yield name, index, committed.offset, max(partition.high_watermark - begin, 0)


_PAGES: Final = (
    Parameter("page_size", "integer", "1000, which is the most"),
    Parameter("cursor", "string", "next_cursor of the page before"),
)

KAFKA_ROUTES: Final = (
    Route(
        "GET", "/v0/kafka/topics", list_topics, "Kafka topics: partitions, offsets, bytes",
        Scope.READ, query=_PAGES, answer=KafkaTopicList, errors=("not_found",),
        served_by=KafkaListing,
    ),
    Route(
        "GET", "/v0/kafka/groups", list_groups, "Consumer groups: state, members, lag",
        Scope.READ, query=_PAGES, answer=KafkaGroupList, errors=("not_found",),
        served_by=KafkaListing,
    ),
)  # fmt: skip
