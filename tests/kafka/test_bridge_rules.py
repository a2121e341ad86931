"""What a bridge decides without asking anybody: addresses, places, what counts as a copy."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message

from headwater.client.bridge.addresses import Cluster
from headwater.client.bridge.ends import same_record
from headwater.client.bridge.partition import Crossing
from headwater.client.bridge.resuming import compare
from headwater.client.bridge.statement import (
    BridgeStoppedError,
    Place,
    Statement,
    Watermarks,
    decode_statement,
    encode_statement,
    uncounted,
)
from headwater.core.errors import InvalidRequestError, RequestError

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
        uncounted(Place(10, 50), Watermarks(*source), Watermarks(*dest), "t/0")


def test_records_are_counted_and_not_offsets() -> None:
    assert uncounted(Place(10, 50), Watermarks(0, 100), Watermarks(3, 57), "t/0") == 7
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

    def str(self) -> str:
        return "refused"


def test_a_copy_must_lie_where_the_count_says() -> None:
    crossing = Crossing("t", 0, Place(10, 50))
    for offset in (10, 12, 13):
        crossing.sent(offset)
    crossing.acked(None, Told(50))
    assert (crossing.place, crossing.copied) == (Place(11, 51), 1)
    crossing.acked(None, Told(52))
    crossing.acked(None, Told(53))
    assert "instead of 51" in str(crossing.failure)
    assert (crossing.place, crossing.copied, crossing.under_way) == (Place(11, 51), 1, 0)
    other = Crossing("t", 0, Place(0, 0))
    other.sent(0)
    other.acked(Told(0), None)
    assert "refuses: refused" in str(other.failure)


def test_a_statement_comes_back_and_nothing_else_is_taken_for_one() -> None:
    statement = Statement("kafka://a:1", {"t": {"0": Place(3, 4)}}, True)
    again = decode_statement(encode_statement(statement), "here")
    assert again == statement
    assert (again.place("t", 0), again.place("t", 1)) == (Place(3, 4), None)
    assert list(again.items()) == [("t", 0, Place(3, 4))]
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
    for wrong in ("one:9092", "http://one", "kafka://", "kafka://one:x", "kafka://u:secret@one:0"):
        with pytest.raises(InvalidRequestError) as refused:
            Cluster(wrong)
        assert "secret" not in str(refused.value)
    with pytest.raises(InvalidRequestError):
        Cluster("kafka://one", ["no value"])


def test_settings_that_make_copies_exact_cannot_be_chosen() -> None:
    from headwater.client.bridge.ends import Writing

    with pytest.raises(RequestError, match="acks is set by the bridge"):
        Writing(Cluster("kafka://127.0.0.1:1", ["acks=1"]))
