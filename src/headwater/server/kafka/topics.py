"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from headwater.core.errors import HeadwaterError
from headwater.engine.kafka.configs import TOPIC_CONFIGS
from headwater.server.kafka.cluster import NO_TOPIC_ID, NODE_ID, find_topic
from headwater.server.kafka.configs import DEFAULT, SET_ON_TOPIC
from headwater.server.kafka.endpoint import WaitGroup
from headwater.server.kafka.refusals import KafkaRequestError, code_of, code_of_absent
from headwater.wire.kafka.apis import ApiKey, ErrorCode
from headwater.wire.kafka.codec import encode_row

if TYPE_CHECKING:
    from headwater.engine.kafka.partition import KafkaTopic
    from headwater.engine.owner import Pending
    from headwater.server.kafka.endpoint import Call, KafkaEndpoint

Row = dict[str, Any]

BY_DEFAULT: Final = -1


def _fail(row: Row, error: HeadwaterError) -> None:
    row.update(error_code=code_of(error), error_message=str(error))


def _named_twice(name: str | None) -> KafkaRequestError:
    return KafkaRequestError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named twice")


# -- making


def create(endpoint: KafkaEndpoint, call: Call) -> None:
    rows: list[Row] = []
    wait_group: WaitGroup[KafkaTopic] = WaitGroup(lambda: call.answer({"topics": rows}))
    times = Counter(requested["name"] for requested in call.values["topics"])
    for name, requested in {each["name"]: each for each in call.values["topics"]}.items():
        row: Row = {"name": name, "error_code": ErrorCode.NONE}
        rows.append(row)
        try:
            if times[name] > 1:
                raise _named_twice(name)
            partitions = _partitions_wanted(endpoint, requested)
            configs = {each["name"]: each["value"] or "" for each in requested["configs"]}
            endpoint.store.check_new_topic(call.organisation, name, partitions, configs)
            row.update(
                num_partitions=partitions,
                replication_factor=1,
                configs=_config_rows(configs, call.version),
            )
            if not call.values["validate_only"]:
                pending = endpoint.store.create_topic(call.organisation, name, partitions, configs)
                wait_group.expect(pending, partial(_created, row))
        except HeadwaterError as error:
            _fail(row, error)
    wait_group.end()


def _config_rows(configs: dict[str, str], version: int) -> list[Row | bytes]:
    """All settings of a new topic. Java's client fails on an answer without them."""
    return [
        {"name": name, "value": configs[name], "config_source": SET_ON_TOPIC}
        if name in configs
        else default
        for name, default in _defaults(version).items()
    ]


@cache
def _defaults(version: int) -> dict[str, bytes]:
    """Rows of settings as they are unless said otherwise: written once, for every topic."""
    return {
        name: encode_row(
            ApiKey.CREATE_TOPICS,
            version,
            "topics.configs",
            {"name": name, "value": known.default, "config_source": DEFAULT},
        )
        for name, known in TOPIC_CONFIGS.items()
    }


def _partitions_wanted(endpoint: KafkaEndpoint, requested: Row) -> int:
    """There is one broker and one copy: no other assignment is possible."""
    if requested["assignments"]:
        if (
            requested["num_partitions"] != BY_DEFAULT
            or requested["replication_factor"] != BY_DEFAULT
        ):
            raise KafkaRequestError(
                ErrorCode.INVALID_REQUEST, "either numbers or an assignment, not both"
            )
        assigned = {
            each["partition_index"]: each["broker_ids"] for each in requested["assignments"]
        }
        if set(assigned) != set(range(len(requested["assignments"]))) or any(
            nodes != [NODE_ID] for nodes in assigned.values()
        ):
            raise KafkaRequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only broker is {NODE_ID}"
            )
        return len(assigned)
    if requested["replication_factor"] not in (BY_DEFAULT, 1):
        raise KafkaRequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "there is one broker: the factor is 1"
        )
    if requested["num_partitions"] == BY_DEFAULT:
        return endpoint.settings.kafka_default_partitions
    return int(requested["num_partitions"])


def _created(row: Row, done: Pending[KafkaTopic]) -> None:
    try:
        row["topic_id"] = done.answer().topic_id
    except HeadwaterError as error:
        _fail(row, error)


# -- deleting


def delete(endpoint: KafkaEndpoint, call: Call) -> None:
    """By name, or by id in the newest version. What is meant must be beyond doubt."""
    rows: list[Row] = []
    wait_group: WaitGroup[bool] = WaitGroup(lambda: call.answer({"responses": rows}))
    times = Counter((each["name"], each["topic_id"]) for each in call.values["topics"])
    times.update((name, NO_TOPIC_ID) for name in call.values["topic_names"])
    for (name, topic_id), count in times.items():
        row: Row = {"name": name, "topic_id": topic_id, "error_code": ErrorCode.NONE}
        rows.append(row)
        if (name is None) == (topic_id == NO_TOPIC_ID):
            _fail(
                row,
                KafkaRequestError(ErrorCode.INVALID_REQUEST, "either a name or an id, not both"),
            )
            continue
        if count > 1:
            _fail(row, _named_twice(name))
            continue
        topic = find_topic(endpoint, call, name, topic_id)
        if topic is None:
            row["error_code"] = (
                ErrorCode.UNKNOWN_TOPIC_ID
                if name is None
                else code_of_absent(endpoint.store, call.organisation, name)
            )
            continue
        row.update(name=topic.name, topic_id=topic.topic_id)
        try:
            wait_group.expect(topic.drop(), partial(_done, row))
        except HeadwaterError as error:
            _fail(row, error)
    wait_group.end()


def _done(row: Row, done: Pending[Any]) -> None:
    if done.error is not None:
        _fail(row, done.error)


# -- more partitions


def create_partitions(endpoint: KafkaEndpoint, call: Call) -> None:
    rows: list[Row] = []
    wait_group: WaitGroup[Any] = WaitGroup(lambda: call.answer({"results": rows}))
    times = Counter(requested["name"] for requested in call.values["topics"])
    for requested in call.values["topics"]:
        row: Row = {"name": requested["name"], "error_code": ErrorCode.NONE}
        rows.append(row)
        topic = endpoint.store.topic(call.organisation, requested["name"])
        try:
            if times[requested["name"]] > 1:
                raise _named_twice(requested["name"])
            if topic is None:
                code = code_of_absent(endpoint.store, call.organisation, requested["name"])
                raise KafkaRequestError(code, "there is no such topic")
            if requested["count"] <= len(topic.partitions):
                raise KafkaRequestError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"there are {len(topic.partitions)} partitions; their number only grows",
                )
            _check_assignments(
                requested["assignments"] or (), requested["count"] - len(topic.partitions)
            )
            if not call.values["validate_only"]:
                pending = topic.grow(requested["count"])
                wait_group.expect(pending, partial(_done, row))
        except HeadwaterError as error:
            _fail(row, error)
    wait_group.end()


def _check_assignments(assignments: Sequence[Row], added: int) -> None:
    """A request that assigns new partitions assigns each; there is only one broker."""
    if assignments and len(assignments) != added:
        raise KafkaRequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(assignments)} assignments for {added} new partitions",
        )
    if any(each["broker_ids"] != [NODE_ID] for each in assignments):
        raise KafkaRequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only broker is {NODE_ID}"
        )
