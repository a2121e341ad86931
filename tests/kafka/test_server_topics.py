"""Topics over the wire: made, refused, found, and where clients are told to go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.server.kafka import cluster, refusals
from headwater.wire.kafka.apis import ApiKey, ErrorCode
from headwater.wire.kafka.codec import request_frame
from tests.kafka.broker import Broker, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.rig.kafka import batch_of

TOPIC = 2
BROKER = 4


def create(speaker: RawKafka, *rows: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    told = speaker.ask(ApiKey.CREATE_TOPICS, {"topics": list(rows), **more})
    return list(told["topics"])


def asked(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": -1, "replication_factor": -1, **more}


def metadata(speaker: RawKafka, name: str, *, makes: bool = True) -> dict[str, Any]:
    values = {"topics": [{"name": name}], "allow_auto_topic_creation": makes}
    (row,) = speaker.ask(ApiKey.METADATA, values)["topics"]
    return dict(row)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": 1_000_000}, ErrorCode.INVALID_PARTITIONS),
        ({"configs": [{"name": "no.such", "value": "1"}]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [{"name": "retention.ms", "value": "soon"}]}, ErrorCode.INVALID_CONFIG),
        (
            {"assignments": [{"partition_index": 0, "broker_ids": [2]}]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            {"assignments": [{"partition_index": 1, "broker_ids": [1]}]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            {"num_partitions": 1, "assignments": [{"partition_index": 0, "broker_ids": [1]}]},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_not_made(
    speaker: RawKafka, name: str, wrong: dict[str, Any], code: ErrorCode
) -> None:
    name = name[:100]
    (row,) = create(speaker, asked(name, **wrong))
    assert row["error_code"] == code
    assert row["error_message"]
    assert metadata(speaker, name, makes=False)["error_code"] == 3


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "ü"])
def test_names_that_cannot_be_are_refused_also_for_topics_made_in_passing(
    speaker: RawKafka, name: str
) -> None:
    (row,) = create(speaker, asked(name))
    assert row["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    for makes in (True, False):
        row = metadata(speaker, name, makes=makes)
        assert row["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION


OTHER_ID = bytes(range(16))


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([{"name": "", "topic_id": OTHER_ID}], id="a name and the id of another"),
        pytest.param([{"name": None}], id="neither name nor id"),
        pytest.param([{"name": ""}, {"name": ""}], id="a name twice"),
    ],
)
def test_no_topic_is_deleted_where_it_is_in_doubt_which_is_meant(
    speaker: RawKafka, name: str, rows: list[dict[str, Any]]
) -> None:
    topic = speaker.make_topic(name[:100])
    rows = [{**row, "name": topic if row["name"] == "" else None} for row in rows]
    (told,) = speaker.ask(ApiKey.DELETE_TOPICS, {"topics": rows})["responses"]
    assert told["error_code"] == ErrorCode.INVALID_REQUEST
    assert told["error_message"]
    assert metadata(speaker, topic, makes=False)["error_code"] == 0


def test_a_topic_that_is_named_twice_gets_no_partitions(speaker: RawKafka, name: str) -> None:
    topic = speaker.make_topic(name)
    rows = [{"name": topic, "count": count} for count in (3, 4)]
    told = speaker.ask(ApiKey.CREATE_PARTITIONS, {"topics": rows})["results"]
    assert [row["error_code"] for row in told] == [ErrorCode.INVALID_REQUEST] * 2
    assert len(metadata(speaker, topic)["partitions"]) == 1


@pytest.mark.parametrize(
    ("placed", "code"),
    [
        (None, 0),
        ([[1], [1]], 0),
        ([[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1], [5]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1], []], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_new_partitions_are_placed_where_there_is_a_broker(
    speaker: RawKafka, name: str, placed: list[list[int]] | None, code: int
) -> None:
    topic = speaker.make_topic(name[:100])
    assignments = None if placed is None else [{"broker_ids": nodes} for nodes in placed]
    row = {"name": topic, "count": 3, "assignments": assignments}
    (told,) = speaker.ask(ApiKey.CREATE_PARTITIONS, {"topics": [row]})["results"]
    assert told["error_code"] == code
    assert len(metadata(speaker, topic)["partitions"]) == (1 if code else 3)


def test_what_is_changed_twice_in_one_request_is_not_changed(speaker: RawKafka, name: str) -> None:
    topic = speaker.make_topic(name)
    configs = [{"name": "retention.ms", "value": value} for value in ("1000000", "2000000")]
    resource = {"resource_type": 2, "resource_name": topic}
    twice = [{**resource, "configs": configs}]
    apart = [{**resource, "configs": [each]} for each in configs]
    for resources in (twice, apart):
        for api in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
            told = speaker.ask(api, {"resources": resources})["responses"]
            assert {row["error_code"] for row in told} == {ErrorCode.INVALID_REQUEST}
    asked = {**resource, "configuration_keys": ["retention.ms"]}
    (told,) = speaker.ask(ApiKey.DESCRIBE_CONFIGS, {"resources": [asked]})["results"]
    assert told["configs"][0]["value"] == "-1"


def test_whoever_has_heard_of_a_later_leader_is_told_so(speaker: RawKafka, name: str) -> None:
    topic = speaker.make_topic(name)
    for epoch, code in ((0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        row = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": epoch}
        values = {"topics": [{"name": topic, "partitions": [row]}]}
        (told,) = speaker.ask(ApiKey.LIST_OFFSETS, values)["topics"]
        assert told["partitions"][0]["error_code"] == code


def test_no_epoch_is_told_where_no_offset_is_found(speaker: RawKafka, name: str) -> None:
    topic = speaker.make_topic(name)
    values = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": 7}]}]}
    (told,) = speaker.ask(ApiKey.LIST_OFFSETS, values)["topics"]
    (row,) = told["partitions"]
    assert (row["error_code"], row["offset"], row["leader_epoch"]) == (0, -1, -1)


def test_topics_are_made_each_by_itself(speaker: RawKafka, name: str) -> None:
    assignment = [{"partition_index": each, "broker_ids": [1]} for each in (1, 0)]
    rows = create(
        speaker,
        asked(f"{name}-a"),
        asked(f"{name}-b", assignments=assignment),
        asked(f"{name}-c", replication_factor=9),
        asked(f"{name}-a"),
    )
    assert {row["name"][-1]: row["error_code"] for row in rows} == {
        "a": ErrorCode.INVALID_REQUEST,
        "b": 0,
        "c": ErrorCode.INVALID_REPLICATION_FACTOR,
    }
    assert len(metadata(speaker, f"{name}-b", makes=False)["partitions"]) == 2
    (row,) = create(speaker, asked(f"{name}-b"))
    assert row["error_code"] == ErrorCode.TOPIC_ALREADY_EXISTS


def test_what_is_only_validated_is_not_made(speaker: RawKafka, name: str) -> None:
    (row,) = create(speaker, asked(name, num_partitions=3), validate_only=True)
    assert (row["error_code"], row["num_partitions"]) == (0, 3)
    assert metadata(speaker, name, makes=False)["error_code"] == 3
    speaker.make_topic(name)
    values = {"topics": [{"name": name, "count": 5}], "validate_only": True}
    assert speaker.ask(ApiKey.CREATE_PARTITIONS, values)["results"][0]["error_code"] == 0
    assert len(metadata(speaker, name)["partitions"]) == 1


def test_topics_are_made_in_passing_only_where_that_is_wanted(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"kafka_auto_create_topics": False, "kafka_default_partitions": 3}
    broker = running_broker(tmp_path / "a", **fields)
    with broker as found, RawKafka(found.kafka_port) as speaker:
        assert metadata(speaker, "orders")["error_code"] == 3
        create(speaker, asked("users"))
        assert len(metadata(speaker, "users")["partitions"]) == 3


def test_a_topic_is_made_in_passing_once(speaker: RawKafka, name: str) -> None:
    values = {"topics": [{"name": name}, {"name": name}], "allow_auto_topic_creation": True}
    rows = speaker.ask(ApiKey.METADATA, values)["topics"]
    assert [row["error_code"] for row in rows] == [0, ErrorCode.LEADER_NOT_AVAILABLE]
    assert metadata(speaker, name)["error_code"] == 0
    assert speaker.produce(name, batch_of("a"))["base_offset"] == 0


def test_clients_are_told_where_they_came_in_or_what_was_set(tmp_path: Path) -> None:
    with running_broker(tmp_path / "a") as broker, RawKafka(broker.kafka_port) as speaker:
        (row,) = speaker.ask(ApiKey.METADATA, {"topics": []})["brokers"]
        assert (row["host"], row["port"]) == ("127.0.0.1", broker.kafka_port)
    elsewhere = running_broker(tmp_path / "b", kafka_advertised="log.example:19092")
    with elsewhere as broker, RawKafka(broker.kafka_port) as speaker:
        (row,) = speaker.ask(ApiKey.METADATA, {"topics": []})["brokers"]
        assert (row["node_id"], row["host"], row["port"]) == (1, "log.example", 19092)
        told = speaker.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
        assert told["coordinators"][0]["host"] == "log.example"


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(-1, 3), (-2, 0), (-3, 0), (0, 0), (2**62, -1), (-4, -1), (-9, -1)]
)
def test_offsets_are_found_by_every_kind_of_time(
    speaker: RawKafka, name: str, timestamp: int, offset: int
) -> None:
    speaker.make_topic(name)
    speaker.produce(name, batch_of("a", "b", "c"))
    rows = [{"partition_index": 0, "timestamp": timestamp}]
    told = speaker.ask(ApiKey.LIST_OFFSETS, {"topics": [{"name": name, "partitions": rows}]})
    (row,) = told["topics"][0]["partitions"]
    assert row["offset"] == offset
    assert row["error_code"] == (ErrorCode.UNSUPPORTED_VERSION if timestamp < -3 else 0)


def test_a_kind_of_time_that_is_newer_than_the_request_is_not_known(
    speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    for version, code in ((6, ErrorCode.UNSUPPORTED_VERSION), (7, ErrorCode.NONE)):
        rows = [{"partition_index": 0, "timestamp": -3}]
        values = {"topics": [{"name": name, "partitions": rows}]}
        told = speaker.ask(ApiKey.LIST_OFFSETS, values, version)
        assert told["topics"][0]["partitions"][0]["error_code"] == code


def test_the_only_epoch_ends_where_the_log_ends(speaker: RawKafka, name: str) -> None:
    speaker.make_topic(name)
    speaker.produce(name, batch_of("a", "b"))

    def end(epoch: int) -> tuple[int, int]:
        rows = [{"partition": 0, "leader_epoch": epoch}]
        values = {"topics": [{"topic": name, "partitions": rows}]}
        told = speaker.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, values)
        (row,) = told["topics"][0]["partitions"]
        return row["leader_epoch"], row["end_offset"]

    assert end(0) == (0, 2)
    assert end(5) == (-1, -1)


def configs(speaker: RawKafka, kind: int, name: str) -> dict[str, str]:
    values = {"resources": [{"resource_type": kind, "resource_name": name}]}
    (told,) = speaker.ask(ApiKey.DESCRIBE_CONFIGS, values)["results"]
    assert told["error_code"] == 0, told
    return {row["name"]: row["value"] for row in told["configs"]}


@pytest.mark.parametrize(
    ("operation", "value", "after"), [(0, "1000", "1000"), (1, None, "-1"), (9, "1", "5000")]
)
def test_single_configs_are_set_and_taken_back(
    speaker: RawKafka, name: str, operation: int, value: str | None, after: str
) -> None:
    row = asked(name, configs=[{"name": "retention.ms", "value": "5000"}])
    create(speaker, row)
    change = {"name": "retention.ms", "config_operation": operation, "value": value}
    resource = {"resource_type": TOPIC, "resource_name": name, "configs": [change]}
    speaker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
    assert configs(speaker, TOPIC, name)["retention.ms"] == after


def test_settings_of_the_server_are_shown_and_not_changed(speaker: RawKafka) -> None:
    assert configs(speaker, BROKER, "1")["num.partitions"] == "1"
    change = {"name": "num.partitions", "config_operation": 0, "value": "5"}
    resource = {"resource_type": BROKER, "resource_name": "1", "configs": [change]}
    told = speaker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
    assert told["responses"][0]["error_code"] == ErrorCode.INVALID_REQUEST


@pytest.mark.claims(49)
def test_there_is_one_copy_of_everything_and_clients_are_told_so(
    speaker: RawKafka, name: str
) -> None:
    (refused,) = create(speaker, asked(name, replication_factor=2))
    assert refused["error_code"] == ErrorCode.INVALID_REPLICATION_FACTOR
    (row,) = metadata(speaker, name)["partitions"]
    assert (row["leader_id"], row["replica_nodes"], row["isr_nodes"]) == (1, [1], [1])
    assert [broker["broker_id"] for broker in speaker.ask(ApiKey.DESCRIBE_CLUSTER)["brokers"]] == [
        1
    ]


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_topic_without_a_name_beside_one_that_is_being_made_is_answered(
    speaker: RawKafka, name: str, version: int
) -> None:
    topics = [{"name": None, "topic_id": b"n" * 16}, {"name": name}]
    told = speaker.ask(ApiKey.METADATA, {"topics": topics}, version)
    codes = [row["error_code"] for row in told["topics"]]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]


@pytest.mark.parametrize("version", [10, 12])
@pytest.mark.parametrize("nobody", [None, ""])
def test_an_id_tells_which_topic_is_meant_whatever_its_name_says(
    speaker: RawKafka, name: str, version: int, nobody: str | None
) -> None:
    speaker.make_topic(name, 2)
    topic_id = metadata(speaker, name)["topic_id"]
    topics = [{"name": nobody, "topic_id": each} for each in (topic_id, b"n" * 16)]
    found, missing = speaker.ask(ApiKey.METADATA, {"topics": topics}, version)["topics"]
    assert (found["error_code"], found["name"], found["topic_id"]) == (0, name, topic_id)
    assert len(found["partitions"]) == 2
    assert missing["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
    assert missing["topic_id"] == b"n" * 16
    assert missing["name"] == ("" if version < 12 else None)


def test_an_answer_that_cannot_be_written_leaves_nobody_waiting(
    broker: Broker, speaker: RawKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known that would; whoever asks is told all the same, or hung up on."""
    monkeypatch.setattr(cluster, "CLUSTER_ID", 5)
    told = speaker.ask(ApiKey.METADATA, {"topics": [{"name": name}]})
    assert told["topics"][0]["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR
    monkeypatch.setitem(refusals.REFUSALS, ApiKey.METADATA, lambda *_: {"topics": 5})
    values = {"topics": [{"name": f"{name}.other"}]}
    speaker.send(request_frame(ApiKey.METADATA, 12, 7, "speaker", values))
    assert speaker.is_hung_up()


def change_of(topic: str, config: str, value: str) -> bytes:
    configs = [{"name": config, "config_operation": 0, "value": value}]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    return request_frame(api, 1, 7, "speaker", {"resources": [resource]})


def test_two_changes_at_once_by_two_clients_are_both_made(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    with RawKafka(broker.kafka_port) as other:
        other.ask(ApiKey.API_VERSIONS)
        with broker.held():
            speaker.send(change_of(name, "retention.ms", "5000000"))
            other.send(change_of(name, "retention.bytes", "6000000"))
        for each in (speaker, other):
            told = each.answer(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 7)
            assert told["responses"][0]["error_code"] == 0
    assert configs_of(speaker, name) == ("5000000", "6000000")
    # Nothing of them is kept: the next one begins with what the log says.
    speaker.send(change_of(name, "retention.ms", "7000000"))
    speaker.answer(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 7)
    assert configs_of(speaker, name) == ("7000000", "6000000")


def configs_of(speaker: RawKafka, topic: str) -> tuple[str, str]:
    resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
    (told,) = speaker.ask(ApiKey.DESCRIBE_CONFIGS, {"resources": [resource]})["results"]
    found = {each["name"]: each["value"] for each in told["configs"]}
    return found["retention.ms"], found["retention.bytes"]
