"""A key tells the organisation whose Kafka topics its names are about."""

from __future__ import annotations

import pytest

from headwater.config.topic import check_topic_name
from headwater.core.errors import InvalidRequestError, RequestError
from headwater.server.access.keys import ANYONE, Scope, parse_key


@pytest.mark.parametrize(
    ("text", "prefixes", "organisation"),
    [
        ("long-enough", (), 1),
        ("long-enough:read", (), 1),
        ("long-enough:org=7", (), 7),
        ("long-enough:read:org=7", (), 7),
        ("long-enough:read::org=7", (), 7),
        ("long-enough:read:kafka:orders:1", ("kafka:orders:1",), 1),
        ("long-enough:read:kafka:orders:1|shop.:org=7", ("kafka:orders:1", "shop."), 7),
    ],
)
def test_the_organisation_of_a_key_is_its_last_part(
    text: str, prefixes: tuple[str, ...], organisation: int
) -> None:
    key = parse_key(text)
    assert (key.prefixes, key.organisation) == (prefixes, organisation)
    assert key.scopes & Scope.READ


def test_without_keys_the_organisation_is_the_first() -> None:
    assert ANYONE.organisation == 1


@pytest.mark.parametrize("last", ["org=", "org=0", "org=x", "org=-1", "org=٣", "shop.org=7"])
def test_an_organisation_that_is_no_number_refuses_the_key(last: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_key(f"long-enough:read:{last}")
    assert "long-enough" not in str(refused.value)


def test_names_of_partitions_cannot_be_those_of_new_topics() -> None:
    assert check_topic_name("kafka:orders:0") == "kafka:orders:0"
    with pytest.raises(InvalidRequestError, match="Kafka client"):
        check_topic_name("kafka:orders:0", is_new=True)
