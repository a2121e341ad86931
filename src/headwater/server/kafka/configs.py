"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs. Topics have settings that can be changed;
those of the server are shown, and are changed where it is started."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headwater.core.errors import HeadwaterError
from headwater.engine.kafka.configs import TOPIC_CONFIGS, check_configs, known_config
from headwater.server.kafka.cluster import NODE_ID
from headwater.server.kafka.endpoint import WaitGroup
from headwater.server.kafka.refusals import KafkaRequestError, code_of, code_of_absent
from headwater.wire.kafka.apis import ErrorCode

if TYPE_CHECKING:
    from headwater.engine.owner import Pending
    from headwater.engine.partition import BatchTopic
    from headwater.server.kafka.endpoint import Call, KafkaEndpoint

Row = dict[str, Any]

TOPIC: Final = 2
BROKER: Final = 4
SET_ON_TOPIC: Final = 1
_SET_ON_BROKER: Final = 4
DEFAULT: Final = 5
_STRING: Final = 2
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


# -- looking


def describe(endpoint: KafkaEndpoint, call: Call) -> None:
    rows = []
    for requested in call.values["resources"]:
        row = _resource(requested)
        rows.append(row)
        try:
            configs = _configs_of(endpoint, call, requested)
        except HeadwaterError as error:
            _fail(row, error)
            continue
        wanted = requested["configuration_keys"]
        row["configs"] = [
            each for each in configs if wanted is None or not wanted or each["name"] in wanted
        ]
    call.answer({"results": rows})


def _configs_of(endpoint: KafkaEndpoint, call: Call, requested: Row) -> list[Row]:
    if requested["resource_type"] == BROKER:
        if requested["resource_name"] not in ("", str(NODE_ID)):
            raise KafkaRequestError(ErrorCode.INVALID_REQUEST, f"the only broker is {NODE_ID}")
        return _broker_configs(endpoint)
    configs = _topic(endpoint, call, requested).configs
    return [
        {
            "name": name,
            "value": configs.get(name, known.default),
            "is_default": name not in configs,
            "config_source": SET_ON_TOPIC if name in configs else DEFAULT,
            "config_type": _STRING,
            "documentation": known.meaning,
        }
        for name, known in TOPIC_CONFIGS.items()
    ]


def _broker_configs(endpoint: KafkaEndpoint) -> list[Row]:
    settings = endpoint.settings
    shown = {
        "auto.create.topics.enable": str(settings.kafka_auto_create_topics).lower(),
        "num.partitions": str(settings.kafka_default_partitions),
        "socket.request.max.bytes": str(settings.limits.kafka_request_bytes),
        "default.replication.factor": "1",
    }
    return [
        {
            "name": name,
            "value": value,
            "read_only": True,
            "config_source": _SET_ON_BROKER,
            "config_type": _STRING,
        }
        for name, value in shown.items()
    ]


# -- changing


def alter(endpoint: KafkaEndpoint, call: Call) -> None:
    """All settings of a topic at once: what is not named goes back to its default."""

    def wanted(_topic: BatchTopic, requested: Row) -> dict[str, str]:
        return {each["name"]: each["value"] or "" for each in requested["configs"]}

    _change(endpoint, call, wanted)


def alter_incrementally(endpoint: KafkaEndpoint, call: Call) -> None:
    def wanted(topic: BatchTopic, requested: Row) -> dict[str, str]:
        configs = dict(topic.configs if topic.altered is None else topic.altered)
        for each in requested["configs"]:
            _change_one(configs, each["name"], each["config_operation"], each["value"] or "")
        return configs

    _change(endpoint, call, wanted)


def _change_one(configs: dict[str, str], name: str, operation: int, value: str) -> None:
    listed = [part for part in configs.get(name, known_config(name).default).split(",") if part]
    if operation == SET:
        configs[name] = value
    elif operation == DELETE:
        configs.pop(name, None)
    elif operation == APPEND:
        configs[name] = ",".join(dict.fromkeys([*listed, *value.split(",")]))
    elif operation == SUBTRACT:
        configs[name] = ",".join(part for part in listed if part not in value.split(","))
    else:
        raise KafkaRequestError(ErrorCode.INVALID_REQUEST, f"an unknown change {operation}")


def _change(endpoint: KafkaEndpoint, call: Call, wanted: Any) -> None:
    rows: list[Row] = []
    wait_group: WaitGroup[Any] = WaitGroup(lambda: call.answer({"responses": rows}))
    resources = Counter(_name_of(requested) for requested in call.values["resources"])
    for requested in call.values["resources"]:
        row = _resource(requested)
        rows.append(row)
        try:
            topic = _topic(endpoint, call, requested)
            names = {each["name"] for each in requested["configs"]}
            if resources[_name_of(requested)] > 1 or len(names) < len(requested["configs"]):
                raise KafkaRequestError(
                    ErrorCode.INVALID_REQUEST, "the same is to be changed twice"
                )
            configs = check_configs(wanted(topic, requested))
            if not call.values["validate_only"]:
                pending = topic.alter(configs)
                wait_group.expect(pending, partial(_changed, row))
        except HeadwaterError as error:
            _fail(row, error)
    wait_group.end()


def _changed(row: Row, done: Pending[Any]) -> None:
    if done.error is not None:
        _fail(row, done.error)


def _topic(endpoint: KafkaEndpoint, call: Call, requested: Row) -> BatchTopic:
    if requested["resource_type"] != TOPIC:
        raise KafkaRequestError(ErrorCode.INVALID_REQUEST, "only topics have settings of this kind")
    topic = endpoint.store.topic(call.organisation, requested["resource_name"])
    if topic is None:
        code = code_of_absent(endpoint.store, call.organisation, requested["resource_name"])
        raise KafkaRequestError(code, "there is no such topic")
    return topic


def _name_of(requested: Row) -> tuple[int, str]:
    return requested["resource_type"], requested["resource_name"]


def _resource(requested: Row) -> Row:
    return {
        "resource_type": requested["resource_type"],
        "resource_name": requested["resource_name"],
        "error_code": ErrorCode.NONE,
    }


def _fail(row: Row, error: HeadwaterError) -> None:
    row.update(error_code=code_of(error), error_message=str(error))
