"""What clients ask first: versions, brokers, topics, and who coordinates.

The rows of Metadata may be a hundred thousand in one answer, without delaying other clients. What a
row says beside its topic's name and id follows from the number of partitions: it is written by the
table once for each version and number; names and ids are put in between.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.core.errors import HeadwaterError
from headwater.core.units import KIB
from headwater.engine.kafka.topics import check_topic_name
from headwater.server.access.keys import Scope
from headwater.server.kafka.endpoint import WaitGroup
from headwater.server.kafka.refusals import code_of, code_of_absent
from headwater.wire.kafka.apis import ADVERTISED, ApiKey, ErrorCode
from headwater.wire.kafka.codec import encode_row
from headwater.wire.kafka.encoding import text_bytes
from headwater.wire.kafka.messages import MESSAGES

if TYPE_CHECKING:
    from headwater.engine.kafka.partition import KafkaTopic
    from headwater.engine.owner import Pending
    from headwater.engine.partition import BatchTopic
    from headwater.server.kafka.endpoint import Call, KafkaEndpoint


NODE_ID: Final = 1
LEADER_EPOCH: Final = 0
_FORMS_MAX: Final = 64
"""Kept at a time; the longest, of ten thousand partitions, has a quarter of a MiB."""
_NAME: Final = "?"
_ID: Final = b"?" * 16
CLUSTER_ID: Final = "headwater"
NULL_NAME_SINCE: Final = 12
"""Version of Metadata in whose answers a topic may have no name."""
NO_TOPIC_ID: Final = bytes(16)
_GROUP_KEY: Final = 0
TURN_BYTES: Final = 128 * KIB
"""Of rows that are written before others have their turn: about two thousand small topics."""

Row = dict[str, Any] | bytes
"""Of a topic: as values, or written."""

_API_ROWS: Final = [
    {"api_key": int(api), "min_version": oldest, "max_version": newest}
    for api, (oldest, newest) in sorted(ADVERTISED.items())
]


class _Form(NamedTuple):
    """A row without its topic."""

    before: bytes
    between: bytes
    after: bytes
    has_id: bool
    flexible: bool


def topic_row(topic: BatchTopic, version: int) -> bytes:
    """A topic as a row of Metadata of this version, encoded."""
    before, between, after, has_id, flexible = _form(version, len(topic.partitions))
    name = text_bytes(topic.name, flexible=flexible)
    if has_id:
        return b"".join((before, name, between, topic.topic_id, after))
    return b"".join((before, name, between))


@lru_cache(maxsize=_FORMS_MAX)
def _form(version: int, partitions: int) -> _Form:
    flexible = MESSAGES[ApiKey.METADATA].is_flexible(version)
    rows = [
        {
            "error_code": ErrorCode.NONE,
            "partition_index": index,
            "leader_id": NODE_ID,
            "leader_epoch": LEADER_EPOCH,
            "replica_nodes": [NODE_ID],
            "isr_nodes": [NODE_ID],
        }
        for index in range(partitions)
    ]
    values = {
        "error_code": ErrorCode.NONE,
        "name": _NAME,
        "topic_id": _ID,
        "partitions": rows,
    }
    written = encode_row(ApiKey.METADATA, version, "topics", values)
    before, _, rest = written.partition(text_bytes(_NAME, flexible=flexible))
    # Versions without ids have nothing to put in there: the rest is all between.
    between, separator, after = rest.partition(_ID)
    return _Form(before, between, after, bool(separator), flexible)


def api_versions(_endpoint: KafkaEndpoint, call: Call) -> None:
    code = ErrorCode.UNSUPPORTED_VERSION if call.unsupported else ErrorCode.NONE
    call.answer({"error_code": code, "api_keys": _API_ROWS})


def describe_cluster(endpoint: KafkaEndpoint, call: Call) -> None:
    host, port = endpoint.advertised(call.connection)
    call.answer(
        {
            "error_code": ErrorCode.NONE,
            "cluster_id": CLUSTER_ID,
            "controller_id": NODE_ID,
            "brokers": [{"broker_id": NODE_ID, "host": host, "port": port}],
        }
    )


def find_coordinator(endpoint: KafkaEndpoint, call: Call) -> None:
    """We coordinate every group; there are no transactions."""
    if call.values["key_type"] != _GROUP_KEY:
        call.refuse(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported"
        )
        return
    host, port = endpoint.advertised(call.connection)
    here = {"node_id": NODE_ID, "host": host, "port": port, "error_code": ErrorCode.NONE}
    keys = call.values["coordinator_keys"]
    call.answer({**here, "coordinators": [{"key": key, **here} for key in keys]})


# -- metadata


def metadata(endpoint: KafkaEndpoint, call: Call) -> None:
    """Topics requested by name are created, where that is allowed and wanted."""
    requested = call.values["topics"]
    if requested is None or (call.version == 0 and not requested):
        _list_all(endpoint, call)
        return
    rows: list[Row] = [{} for _ in requested]
    wait_group: WaitGroup[KafkaTopic] = WaitGroup(lambda: _answer(endpoint, call, rows))
    makes = (
        endpoint.settings.kafka_auto_create_topics
        and call.values["allow_auto_topic_creation"]
        and bool(call.principal.scopes & Scope.WRITE)
    )
    for index, each in enumerate(requested):
        name, topic_id = each["name"], each["topic_id"]
        topic = find_topic(endpoint, call, name, topic_id) or _known(endpoint, call, name, topic_id)
        if topic is not None:
            rows[index] = topic_row(topic, call.version)
        elif name is None or topic_id != NO_TOPIC_ID:
            nameless = None if call.version >= NULL_NAME_SINCE else ""
            code = ErrorCode.UNKNOWN_TOPIC_ID
            rows[index] = {"name": nameless, "topic_id": topic_id, "error_code": code}
        elif makes:
            _make_topic(endpoint, call, name, rows, index, wait_group)
        else:
            rows[index] = _missing(name, _why_missing(endpoint, call, name))
    wait_group.end()


def _list_all(endpoint: KafkaEndpoint, call: Call) -> None:
    """So many at a time that other clients do not notice."""
    topics = iter(endpoint.store.listed(call.organisation))
    rows: list[Row] = []

    def go_on() -> None:
        written = 0
        for topic in topics:
            row = topic_row(topic, call.version)
            rows.append(row)
            written += len(row)
            if written >= TURN_BYTES:
                endpoint.loop.call_soon(guarded)
                return
        _answer(endpoint, call, rows)

    def guarded() -> None:
        try:
            if not call.connection.is_gone:
                go_on()
        except Exception as error:
            endpoint.broken(call, error)

    go_on()


def _why_missing(endpoint: KafkaEndpoint, call: Call, name: str) -> ErrorCode:
    """Clients ask again for a topic that is not there, but not for one that cannot be."""
    try:
        check_topic_name(name)
    except HeadwaterError as error:
        return code_of(error)
    return code_of_absent(endpoint.store, call.organisation, name)


def find_topic(
    endpoint: KafkaEndpoint, call: Call, name: str | None, topic_id: bytes
) -> BatchTopic | None:
    """By its id where there is one, else by its name. Java sends an id with an empty name."""
    if name is None or topic_id != NO_TOPIC_ID:
        return endpoint.store.topic_by_id(call.organisation, topic_id)
    return endpoint.store.topic(call.organisation, name)


def _known(
    endpoint: KafkaEndpoint, call: Call, name: str | None, topic_id: bytes
) -> BatchTopic | None:
    """Of a log that is away: the topic is there, and its partitions say why they are not served."""
    unavailable = endpoint.store.unavailable
    if unavailable is None:
        return None
    if name is None or topic_id != NO_TOPIC_ID:
        return unavailable.known_by_id(call.organisation, topic_id)
    return unavailable.known_topic(call.organisation, name)


def _make_topic(
    endpoint: KafkaEndpoint,
    call: Call,
    name: str,
    rows: list[Row],
    index: int,
    wait_group: WaitGroup[KafkaTopic],
) -> None:
    def made(pending: Pending[KafkaTopic]) -> None:
        try:
            rows[index] = topic_row(pending.answer(), call.version)
        except HeadwaterError as error:
            # Another client was faster.
            topic = endpoint.store.topic(call.organisation, name)
            rows[index] = (
                _missing(name, code_of(error)) if topic is None else topic_row(topic, call.version)
            )

    try:
        pending = endpoint.store.create_topic(
            call.organisation, name, endpoint.settings.kafka_default_partitions, {}
        )
    except HeadwaterError as error:
        code = code_of(error)
        if code is ErrorCode.TOPIC_ALREADY_EXISTS:
            code = ErrorCode.LEADER_NOT_AVAILABLE  # another client is just creating it: ask again
        rows[index] = _missing(name, code)
    else:
        wait_group.expect(pending, made)


def _missing(name: str, code: ErrorCode) -> dict[str, Any]:
    return {"name": name, "topic_id": NO_TOPIC_ID, "error_code": code, "partitions": []}


def _answer(endpoint: KafkaEndpoint, call: Call, rows: list[Row]) -> None:
    host, port = endpoint.advertised(call.connection)
    call.answer(
        {
            "brokers": [{"node_id": NODE_ID, "host": host, "port": port}],
            "cluster_id": CLUSTER_ID,
            "controller_id": NODE_ID,
            "topics": rows,
        }
    )
