"""Consumer groups over the wire, with clients that do exactly what the test says."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from headwater.wire.kafka.apis import SUPPORTED, ApiKey, ErrorCode
from headwater.wire.kafka.codec import request_frame
from tests.kafka.broker import Broker, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.server.running_server import eventually

JOIN = SUPPORTED[ApiKey.JOIN_GROUP].newest


def join_values(group: str, member: str = "", instance: str | None = None) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": member,
        "group_instance_id": instance,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"topics"}],
    }


def enter(speaker: RawKafka, group: str, number: int = 99) -> str:
    """Ask for an id and begin to join with it; the answer is for later."""
    told = speaker.ask(ApiKey.JOIN_GROUP, join_values(group))
    assert told["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
    member = str(told["member_id"])
    values = join_values(group, member)
    speaker.send(request_frame(ApiKey.JOIN_GROUP, JOIN, number, "speaker", values))
    return member


def joined(speaker: RawKafka, number: int = 99) -> dict[str, Any]:
    return speaker.answer(ApiKey.JOIN_GROUP, JOIN, number)


def sync(
    speaker: RawKafka, group: str, member: str, generation: int, **assignments: bytes
) -> dict[str, Any]:
    rows = [{"member_id": name, "assignment": each} for name, each in assignments.items()]
    values = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": rows,
    }
    return speaker.ask(ApiKey.SYNC_GROUP, values)


def heartbeat(speaker: RawKafka, group: str, member: str, generation: int) -> int:
    values = {"group_id": group, "generation_id": generation, "member_id": member}
    return int(speaker.ask(ApiKey.HEARTBEAT, values)["error_code"])


def commit(
    speaker: RawKafka,
    group: str,
    topic: str,
    offset: int,
    member: str = "",
    generation: int = -1,
) -> int:
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "note"}
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": [{"name": topic, "partitions": [row]}],
    }
    (told,) = speaker.ask(ApiKey.OFFSET_COMMIT, values)["topics"]
    return int(told["partitions"][0]["error_code"])


def committed(speaker: RawKafka, group: str, topic: str, version: int = 9) -> tuple[int, str]:
    asked = [{"name": topic, "partition_indexes": [0]}]
    if version >= 8:
        values: dict[str, Any] = {"groups": [{"group_id": group, "topics": asked}]}
        (told,) = speaker.ask(ApiKey.OFFSET_FETCH, values, version)["groups"]
    else:
        told = speaker.ask(ApiKey.OFFSET_FETCH, {"group_id": group, "topics": asked}, version)
    (topic_row,) = told["topics"]
    (row,) = topic_row["partitions"]
    return int(row["committed_offset"]), str(row["metadata"])


def test_two_members_meet_and_share(broker: Broker, name: str) -> None:
    with RawKafka(broker.kafka_port) as one, RawKafka(broker.kafka_port) as two:
        first = enter(one, name)
        assert joined(one)["generation_id"] == 1
        second = enter(two, name)
        assert heartbeat(one, name, first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        again = one.ask(ApiKey.JOIN_GROUP, join_values(name, first))
        other = joined(two)
        assert again["generation_id"] == other["generation_id"] == 2
        assert again["leader"] == other["leader"] == first
        assert {each["member_id"] for each in again["members"]} == {first, second}
        assert other["members"] == []
        assert sync(one, name, first, 2, **{first: b"0", second: b"1"})["assignment"] == b"0"
        assert sync(two, name, second, 2)["assignment"] == b"1"
        assert heartbeat(two, name, second, 2) == 0
        assert heartbeat(two, name, second, 1) == ErrorCode.ILLEGAL_GENERATION
        told = one.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [name]})["groups"][0]
        assert (told["group_state"], told["protocol_data"]) == ("Stable", "range")
        assert {each["client_host"] for each in told["members"]} == {"/127.0.0.1"}


@pytest.mark.parametrize("version", range(JOIN + 1))
def test_every_version_of_join_comes_to_the_same(broker: Broker, name: str, version: int) -> None:
    with RawKafka(broker.kafka_port) as speaker:
        values = join_values(f"{name}-group")
        known = {"group_instance_id"} if version < 5 else set()
        known |= {"rebalance_timeout_ms"} if version < 1 else set()
        asked = {key: value for key, value in values.items() if key not in known}
        told = speaker.ask(ApiKey.JOIN_GROUP, asked, version)
        if version >= 4:
            assert told["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
            asked["member_id"] = told["member_id"]
            told = speaker.ask(ApiKey.JOIN_GROUP, asked, version)
        assert told["error_code"] == 0
        assert told["leader"] == told["member_id"]
        assert [each["metadata"] for each in told["members"]] == [b"topics"]


def test_a_member_that_leaves_makes_room(broker: Broker, name: str) -> None:
    with RawKafka(broker.kafka_port) as speaker:
        member = enter(speaker, name)
        joined(speaker)
        values = {"group_id": name, "members": [{"member_id": member}, {"member_id": "other"}]}
        told = speaker.ask(ApiKey.LEAVE_GROUP, values)
        assert [each["error_code"] for each in told["members"]] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]
        old = {"group_id": name, "member_id": member}
        told = speaker.ask(ApiKey.LEAVE_GROUP, old, 2)
        assert told["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_with_endless_metadata_is_refused(speaker: RawKafka, name: str) -> None:
    values = join_values(name)
    values["protocols"] = [{"name": "range", "metadata": bytes(1024 * 1024 + 1)}]
    assert speaker.ask(ApiKey.JOIN_GROUP, values)["error_code"] == ErrorCode.INVALID_REQUEST


def test_a_static_member_comes_back_without_a_round(broker: Broker, name: str) -> None:
    with RawKafka(broker.kafka_port) as speaker:
        first = speaker.ask(ApiKey.JOIN_GROUP, join_values(name, instance="one"))
        values = {"instance": "one"}
        sync(speaker, name, first["member_id"], 1, **{first["member_id"]: b"all"})
        back = speaker.ask(ApiKey.JOIN_GROUP, join_values(name, **values))
        assert back["generation_id"] == 1
        assert back["skip_assignment"]
        assert back["member_id"] != first["member_id"]
        assert sync(speaker, name, back["member_id"], 1)["assignment"] == b"all"
        fenced = {"group_id": name, "generation_id": 1, "member_id": first["member_id"]}
        told = speaker.ask(ApiKey.HEARTBEAT, fenced | {"group_instance_id": "one"})
        assert told["error_code"] == ErrorCode.FENCED_INSTANCE_ID


def test_whoever_waits_for_others_is_told_when_the_server_stops(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker:
        one, two = RawKafka(broker.kafka_port), RawKafka(broker.kafka_port)
        enter(one, "workers")
        joined(one)
        enter(two, "workers")
        coordinator = broker.endpoint.coordinator
        eventually(lambda: broker.inside(lambda: coordinator.members) == 2)
    assert joined(two)["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    for speaker in (one, two):
        speaker.close()


def test_offsets_and_their_notes_outlive_a_restart(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker, RawKafka(broker.kafka_port) as speaker:
        speaker.make_topic("orders")
        assert commit(speaker, "workers", "orders", 17) == 0
    with running_broker(tmp_path / "data") as broker, RawKafka(broker.kafka_port) as speaker:
        assert committed(speaker, "workers", "orders") == (17, "note")
        (row,) = speaker.ask(ApiKey.LIST_GROUPS)["groups"]
        assert (row["group_id"], row["group_state"]) == ("workers", "Empty")


@pytest.mark.parametrize("version", range(1, 10))
def test_every_version_tells_what_was_committed(broker: Broker, name: str, version: int) -> None:
    with RawKafka(broker.kafka_port) as speaker:
        topic = speaker.make_topic(f"{name}-topic")
        assert committed(speaker, name, topic, version)[0] == -1
        assert commit(speaker, name, topic, 3) == 0
        assert committed(speaker, name, topic, version) == (3, "note")


def test_without_a_list_all_offsets_of_a_group_are_told(speaker: RawKafka, name: str) -> None:
    topic = speaker.make_topic(name)
    commit(speaker, name, topic, 3)
    told = speaker.ask(ApiKey.OFFSET_FETCH, {"groups": [{"group_id": name, "topics": None}]})
    assert [each["name"] for each in told["groups"][0]["topics"]] == [topic]


@pytest.mark.parametrize(
    ("topic", "metadata", "code"),
    [
        ("not-there", "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", "x" * 4_097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_offsets_that_cannot_be_are_refused(
    speaker: RawKafka, name: str, topic: str, metadata: str, code: ErrorCode
) -> None:
    there = speaker.make_topic(name)
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": metadata}
    values = {"group_id": name, "topics": [{"name": topic or there, "partitions": [row]}]}
    told = speaker.ask(ApiKey.OFFSET_COMMIT, values)
    assert told["topics"][0]["partitions"][0]["error_code"] == code
    assert committed(speaker, name, there)[0] == -1


def test_offsets_of_a_member_are_stored_only_in_its_generation(broker: Broker, name: str) -> None:
    with RawKafka(broker.kafka_port) as speaker:
        topic = speaker.make_topic(name)
        member = enter(speaker, name)
        joined(speaker)
        sync(speaker, name, member, 1)
        assert commit(speaker, name, topic, 5, member, 1) == 0
        assert commit(speaker, name, topic, 6, member, 2) == ErrorCode.ILLEGAL_GENERATION
        assert commit(speaker, name, topic, 7) == ErrorCode.UNKNOWN_MEMBER_ID
        assert committed(speaker, name, topic)[0] == 5


def test_offsets_of_an_empty_group_are_deleted(speaker: RawKafka, name: str) -> None:
    topic = speaker.make_topic(name)
    commit(speaker, name, topic, 5)
    values = {"topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}
    told = speaker.ask(ApiKey.OFFSET_DELETE, {"group_id": name, **values})
    assert (told["error_code"], told["topics"][0]["partitions"][0]["error_code"]) == (0, 0)
    assert committed(speaker, name, topic)[0] == -1
    commit(speaker, name, topic, 6)
    rows = [{"name": topic, "partitions": [{"partition_index": 1}]}]
    told = speaker.ask(ApiKey.OFFSET_DELETE, {"group_id": name, "topics": rows})
    code = told["topics"][0]["partitions"][0]["error_code"]
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert committed(speaker, name, topic)[0] == 6
    told = speaker.ask(ApiKey.OFFSET_DELETE, {"group_id": "not-there", **values})
    assert told["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND


def subscription(*topics: str) -> bytes:
    """What a consumer says when it joins: its version, its topics, nothing for the others."""
    names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "code", "codes"),
    [
        ("consumer", subscription("read", "more"), 0, (86, 0)),
        ("consumer", b"other words", 0, (86, 86)),
        ("connect", subscription("read"), ErrorCode.NON_EMPTY_GROUP, ()),
    ],
)
def test_offsets_of_topics_that_a_group_no_longer_reads_are_forgotten(
    speaker: RawKafka,
    name: str,
    protocol_type: str,
    metadata: bytes,
    code: int,
    codes: tuple[int, ...],
) -> None:
    name = f"{name[:40]}-{protocol_type}-{len(metadata)}"
    read, left = speaker.make_topic(f"{name}-read"), speaker.make_topic(f"{name}-left")
    metadata = metadata.replace(struct.pack(">h", 4) + b"read", subscription(read)[6:-4])
    asked = join_values(name) | {
        "protocol_type": protocol_type,
        "protocols": [{"name": "range", "metadata": metadata}],
    }
    for topic in (read, left):
        commit(speaker, name, topic, 5)
    member = speaker.ask(ApiKey.JOIN_GROUP, asked)["member_id"]
    assert speaker.ask(ApiKey.JOIN_GROUP, asked | {"member_id": member})["error_code"] == 0
    rows = [{"name": each, "partitions": [{"partition_index": 0}]} for each in (read, left)]
    told = speaker.ask(ApiKey.OFFSET_DELETE, {"group_id": name, "topics": rows})
    assert told["error_code"] == code
    assert tuple(each["partitions"][0]["error_code"] for each in told["topics"]) == codes
    assert committed(speaker, name, read)[0] == 5
    assert committed(speaker, name, left)[0] == (-1 if codes == (86, 0) else 5)


@pytest.mark.parametrize("version", [3, 5])
def test_nobody_leaves_without_an_error(speaker: RawKafka, name: str, version: int) -> None:
    told = speaker.ask(ApiKey.LEAVE_GROUP, {"group_id": name, "members": []}, version)
    assert (told["error_code"], told["members"]) == (0, [])


def test_a_group_that_is_not_there_is_dead(speaker: RawKafka, name: str) -> None:
    (old,) = speaker.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [name]}, 5)["groups"]
    assert (old["error_code"], old["group_state"]) == (0, "Dead")
    (new,) = speaker.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [name]})["groups"]
    assert new["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(("states", "found"), [(["empty"], True), (["Stable"], False), ([], True)])
def test_groups_are_listed_by_state(
    speaker: RawKafka, name: str, states: list[str], found: bool
) -> None:
    commit(speaker, name, speaker.make_topic(name), 1)
    told = speaker.ask(ApiKey.LIST_GROUPS, {"states_filter": states})
    assert (name in {each["group_id"] for each in told["groups"]}) == found


def test_an_offset_of_a_topic_that_is_just_being_dropped_is_not_left_for_the_next_one(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    rows = [{"partition_index": 0, "committed_offset": 5}]
    commit = {
        "group_id": name,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": name, "partitions": rows}],
    }
    dropped = {"topics": [{"name": name}]}
    with RawKafka(broker.kafka_port) as other:
        other.ask(ApiKey.API_VERSIONS)
        with broker.held():
            other.send(request_frame(ApiKey.DELETE_TOPICS, 6, 1, "speaker", dropped))
            speaker.send(request_frame(ApiKey.OFFSET_COMMIT, 8, 2, "speaker", commit))
        told = other.answer(ApiKey.DELETE_TOPICS, 6, 1)
        assert told["responses"][0]["error_code"] == 0
    (topic,) = speaker.answer(ApiKey.OFFSET_COMMIT, 8, 2)["topics"]
    assert topic["partitions"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    speaker.make_topic(name)
    told = speaker.ask(ApiKey.OFFSET_FETCH, {"group_id": name, "topics": None}, 7)
    assert told["topics"] == []
