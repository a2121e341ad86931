"""Which tags a match means, and which matches are refused."""

from __future__ import annotations

import pytest

from headwater.core.errors import InvalidRequestError
from headwater.model.match import TagMatcher, parse_match


@pytest.mark.claims(233, 234)
@pytest.mark.parametrize(
    ("given", "text", "prefix"),
    [
        (["tag", "Eq", "x"], b"x", False),
        (["tag", "Eq", "x*"], b"x*", False),
        (("tag", "Glob", "x*"), b"x", True),
        (["tag", "Glob", "*"], b"", True),
        ("x", b"x", False),
        ("a*b", b"a*b", False),
        ("x*", b"x", True),
        ("größe*", "größe".encode(), True),
        ("*", b"", True),
    ],
)
def test_a_match_is_an_exact_tag_or_a_prefix(given: object, text: bytes, prefix: bool) -> None:
    assert parse_match(given) == TagMatcher(text, prefix)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "a**",
        "*a*",
        ["tag", "Glob", "a"],
        ["tag", "Glob", "*a*"],
        ["tag", "Glob", ""],
        ["tag", "Eq", ""],
        ["tag", "Eq", 5],
        ["node", "Eq", "x"],
        ["tag", "Regex", "x"],
        ["tag", "Eq"],
        [],
        5,
        None,
        {"tag": "x"},
        "x" * 257,
        "\ud800",
    ],
)
def test_anything_else_is_refused_as_a_bad_request(given: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_match(given)
    assert caught.value.code == "invalid_request"


def test_a_record_without_a_tag_never_matches() -> None:
    every = parse_match("*")
    assert every.matches(b"x")
    assert not every.matches(b"")
    assert not every.matches(None)


def test_a_match_prints_as_it_can_be_written() -> None:
    assert str(parse_match(["tag", "Glob", "x*"])) == "x*"
    assert parse_match(str(parse_match("user-1"))) == parse_match("user-1")
