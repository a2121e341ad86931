"""What a bridge decides without asking anybody: addresses, places, what counts as a copy."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from headwater.client.bridge.clusters import AwayError, ClusterErrors
from headwater.client.bridge.partition import PartitionCopy
from headwater.client.bridge.positions import GONE_US, Positions
from headwater.client.bridge.records import Fingerprint, same_record
from headwater.client.bridge.resume import SourceLoss, compare
from headwater.client.bridge.settings import BridgeSettings, Cluster
from headwater.client.bridge.statement import (
    BridgeStoppedError,
    CopyPosition,
    Statement,
    Watermarks,
    decode_statement,
    encode_statement,
    uncounted,
)
from headwater.core.errors import InvalidRequestError, RequestError
from headwater.testing import ManualClock

RECORD: dict[str, Any] = {
    "offset": 5,
    "key": b"k",
    "value": b"v",
    "headers": [("h", b"1"), ("h", None)],
    "timestamp": (1, 1000),
}


def message(**changes: Any) -> Message:
    return Message(topic="t", partition=0, **{**RECORD, **changes})


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({}, True),
        ({"offset": 9}, True),
        ({"key": None}, False),
        ({"value": b""}, False),
        ({"headers": [("h", None), ("h", b"1")]}, False),
        ({"timestamp": (1, 1001)}, False),
        ({"timestamp": (2, 1001)}, True),
    ],
)
def test_a_copy_is_what_says_the_same(changes: dict[str, Any], is_same: bool) -> None:
    assert same_record(message(), message(**changes)) is is_same


def test_a_time_that_cannot_be_copied_is_not_compared() -> None:
    later = message(timestamp=(1, 1001))
    # A producer takes 0 for no time, and writes the time of writing.
    assert same_record(message(timestamp=(1, 0)), later)
    assert same_record(message(timestamp=(1, -1)), later)
    assert not same_record(later, message(timestamp=(1, 0)))
    # Headwater's log topics set times of their own, and their configuration says so.
    assert same_record(message(), later, any_time=True)
    assert not same_record(message(), message(key=None), any_time=True)


def source_loss(
    known: CopyPosition, left: str, copies: str, first_left: int, gap: int = 1
) -> SourceLoss:
    """Letters are records; those that are left in the source lie `gap` apart."""
    dest = Watermarks(0, known.dest + len(copies))
    there = {known.dest + index: Fingerprint(ord(each), 1, 5) for index, each in enumerate(copies)}
    rows = [
        (first_left + gap * index, Fingerprint(ord(each), 1, 5)) for index, each in enumerate(left)
    ]
    source = Watermarks(first_left, first_left + gap * len(left))
    return SourceLoss(known, source, dest, rows[: len(copies)], there)


@pytest.mark.parametrize(
    ("left", "copies", "first_left", "gap", "plain", "skipped"),
    [
        ("ghij", "abcd", 6, 1, None, 6),  # e and f are lost
        ("efgh", "abcd", 4, 1, 4, 4),  # a to d are gone, and copied
        ("cdef", "abcd", 2, 1, 4, 4),  # c and d are in both
        ("cdef", "abcd", 12, 2, None, 15),  # the same with gaps in what is gone: nobody can count
        ("dddd", "abcd", 4, 1, None, 5),  # d is alike, and may be another
        ("dddd", "dddd", 2, 1, None, 4),  # the count says which
        ("xyz", "abcd", 2, 1, None, None),  # b was copied, and is another one
        ("", "abcd", 4, 1, 4, 4),  # nothing is left, and nothing is missing
    ],
)
def test_where_to_go_on_behind_what_the_source_deleted(
    left: str, copies: str, first_left: int, gap: int, plain: int | None, skipped: int | None
) -> None:
    found = source_loss(CopyPosition(0, 0), left, copies, first_left, gap)
    for skip, wanted in ((False, plain), (True, skipped)):
        position = found.position(skip=skip)
        assert position == (None if wanted is None else CopyPosition(wanted, len(copies)))


def test_copies_that_are_deleted_too_are_taken_for_copies() -> None:
    rows = [(offset, Fingerprint(offset, 1, 5)) for offset in range(2, 6)]
    marks = Watermarks(2, 6), Watermarks(4, 4)
    assert SourceLoss(CopyPosition(0, 0), *marks, rows, {}).position(skip=False) == CopyPosition(
        4, 4
    )


@pytest.mark.parametrize(
    ("source", "dest", "said"),
    [
        ((0, 100), (0, 49), "was dropped or cut"),
        ((0, 9), (0, 50), "made anew"),
        ((11, 100), (0, 50), "deleted before they were copied"),
    ],
)
def test_what_cannot_be_counted_stops_the_bridge(
    source: tuple[int, int], dest: tuple[int, int], said: str
) -> None:
    with pytest.raises(BridgeStoppedError, match=said):
        uncounted(CopyPosition(10, 50), Watermarks(*source), Watermarks(*dest), "t/0")


def test_records_are_counted_and_not_offsets() -> None:
    assert uncounted(CopyPosition(10, 50), Watermarks(0, 100), Watermarks(3, 57), "t/0") == 7
    gapped = (message(offset=offset) for offset in (10, 14, 15, 40))
    copies = (message(offset=offset) for offset in (50, 51, 52))
    assert compare(gapped, copies, 50, 3, "t/0") == 15
    # Copies that the destination deleted by now cannot be compared, and count all the same.
    gapped = (message(offset=offset) for offset in (10, 14, 15, 40))
    assert compare(gapped, iter([message(offset=52)]), 50, 3, "t/0") == 15
    with pytest.raises(BridgeStoppedError, match="1 records more than the source"):
        compare(iter([message()]), iter([message(offset=50)]), 50, 2, "t/0")


class Told:
    """What a producer tells."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def code(self) -> int:
        return self._offset

    def str(self) -> str:
        return "refused"


def test_a_copy_must_lie_where_the_count_says() -> None:
    partition_copy = PartitionCopy("t", 0, CopyPosition(10, 50))
    for offset in (10, 12, 13):
        partition_copy.sent(offset)
    partition_copy.acked(None, Told(50))
    assert (partition_copy.position, partition_copy.copied) == (CopyPosition(11, 51), 1)
    partition_copy.acked(None, Told(52))
    partition_copy.acked(None, Told(53))
    assert "instead of 51" in str(partition_copy.failure)
    assert (partition_copy.position, partition_copy.copied, partition_copy.under_way) == (
        CopyPosition(11, 51),
        1,
        0,
    )
    for told, said in ((Told(0), "refuses: refused"), (Told(10), r"max.message.bytes (20000)")):
        other = PartitionCopy("t", 0, CopyPosition(0, 0), "20000")
        other.sent(0)
        other.acked(told, None)
        assert said in str(other.failure)


def test_the_end_of_the_source_is_reached_when_everything_before_it_is_acked() -> None:
    partition_copy = PartitionCopy("t", 0, CopyPosition(10, 50))
    partition_copy.sent(10)
    partition_copy.sent(11)
    partition_copy.ended(20)
    assert partition_copy.position == CopyPosition(10, 50)
    partition_copy.acked(None, Told(50))
    assert partition_copy.position == CopyPosition(11, 51)
    partition_copy.acked(None, Told(51))
    assert partition_copy.position == CopyPosition(20, 52)
    partition_copy.sent(25)
    partition_copy.ended(26)
    partition_copy.acked(None, Told(53))
    assert (partition_copy.position, partition_copy.failure is None) == (
        CopyPosition(20, 52),
        False,
    )


def test_a_statement_comes_back_and_nothing_else_is_taken_for_one() -> None:
    statement = Statement("kafka://a:1", {"t": {"0": CopyPosition(3, 4)}}, True)
    again = decode_statement(encode_statement(statement), "here")
    assert again == statement
    assert (again.position("t", 0), again.position("t", 1)) == (CopyPosition(3, 4), None)
    assert list(again.items()) == [("t", 0, CopyPosition(3, 4))]
    for wrong in (b"", b"{}", b'{"source":"a","places":{},"version":2}'):
        with pytest.raises(InvalidRequestError, match="here"):
            decode_statement(wrong, "here")


def test_addresses_become_settings_and_never_show_a_password() -> None:
    cluster = Cluster("kafkas://user:p%40ss@one:9093,two", ["# remark", "", "client.id = me"])
    assert str(cluster) == "kafka://one:9093,two:9092"
    assert cluster.settings == {
        "bootstrap.servers": "one:9093,two:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "user",
        "sasl.password": "p@ss",
        "client.id": "me",
    }
    assert str(Cluster("kafka://[::1],[::2]:9093,one")) == "kafka://[::1]:9092,[::2]:9093,one:9092"
    chosen = Cluster("kafka://one", ["bootstrap.servers=two:9094"])
    assert str(chosen) == "kafka://two:9094"
    for wrong in (
        "kafka://::1",
        "kafka://one:",
        "one:9092",
        "http://one",
        "kafka://",
        "kafka://one:x",
        "kafka://u:secret@one:0",
    ):
        with pytest.raises(InvalidRequestError) as refused:
            Cluster(wrong)
        assert "secret" not in str(refused.value)
    with pytest.raises(InvalidRequestError):
        Cluster("kafka://one", ["no value"])


def test_what_waits_for_the_destination_is_bounded_and_the_bound_may_be_chosen() -> None:
    from headwater.client.bridge.clusters import _MINE, _WRITING

    bound = "queue.buffering.max.kbytes"
    assert int(_WRITING["message.max.bytes"]) <= int(_WRITING[bound]) * 1024 <= 1 << 28
    assert bound not in _MINE


def test_settings_that_make_copies_exact_cannot_be_chosen() -> None:
    from headwater.client.bridge.clusters import ClusterWriter

    with pytest.raises(RequestError, match="acks is set by the bridge"):
        ClusterWriter(Cluster("kafka://127.0.0.1:1", ["acks=1"]))


class Ends:
    """A destination that says where the topic of positions ends, one answer after another."""

    def __init__(self, *answers: int | None) -> None:
        self._answers = list(answers)

    def ends(self, spots: list[tuple[str, int]], _timeout_s: float) -> dict[tuple[str, int], int]:
        answer = self._answers.pop(0)
        return {} if answer is None else {spots[0]: answer}


def test_a_destination_that_comes_back_may_know_less_for_a_while_and_never_more() -> None:
    here = Cluster("kafka://one")
    clock = ManualClock()
    nobody: Any = None
    ends: Any = Ends(3, None, 2, 3, 2, 2, 4)
    positions = Positions(BridgeSettings(here, here, ("t",)), ends, nobody, clock)
    positions._next = 3
    positions.check()
    for _ in range(2):
        with pytest.raises(AwayError):
            positions.check()
        clock.advance(GONE_US // 2 - 1)
    positions.check()
    with pytest.raises(AwayError):
        positions.check()
    clock.advance(GONE_US)
    with pytest.raises(BridgeStoppedError, match="was dropped"):
        positions.check()
    with pytest.raises(BridgeStoppedError, match="started after this one"):
        positions.check()


@pytest.mark.parametrize(
    ("code", "heard", "is_refused", "said"),
    [
        (KafkaError._TIMED_OUT, None, False, "does not answer"),
        (KafkaError._TRANSPORT, None, False, "Does it want a user"),
        (KafkaError._TRANSPORT, KafkaError._RESOLVE, False, "Host resolution"),
        (KafkaError._TRANSPORT, KafkaError._AUTHENTICATION, True, "refuses"),
        (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, False, "Does it want a user"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, None, True, "authorization failed"),
    ],
)
def test_what_was_heard_says_why_there_is_no_answer(
    code: int, heard: int | None, is_refused: bool, said: str
) -> None:
    ear = ClusterErrors(Cluster("kafka://one"))
    if heard is not None:
        ear.on_error(KafkaError(heard))
    error = ear.error(KafkaException(KafkaError(code)))
    assert isinstance(error, RequestError if is_refused else AwayError)
    assert said in str(error)
    ear.forget()
    assert not ear.is_refused
