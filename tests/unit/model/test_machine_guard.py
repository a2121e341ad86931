"""Guards: the grammar, and what they mean, against a twin that is easy to believe."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.machines.definition import GUARD_DEPTH_MAX, GuardError, parse_guard

CTX: dict[str, Any] = {
    "total": 120,
    "rate": 0.5,
    "zero": 0,
    "name": "Ann",
    "empty": "",
    "yes": True,
    "no": False,
    "nothing": None,
    "list": [],
    "deep": {"er": {"est": 3}, "text": "x"},
    "order-id": "7",
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("ctx.total", True),
        ("ctx.zero", False),
        ("ctx.empty", False),
        ("ctx.list", False),
        ("ctx.missing", False),
        ("!ctx.missing", True),
        ("ctx.total > 100", True),
        ("ctx.total >= 120", True),
        ("ctx.total < 120", False),
        ("ctx.total <= 1.2e2", True),
        ("ctx.rate == 0.5", True),
        ("ctx.rate > -1", True),
        ("ctx.total == 120.0", True),
        ('ctx.name == "Ann"', True),
        ("ctx.name == 'Ann'", True),
        ("ctx.name != 'Bob'", True),
        ("ctx.name > 3", False),
        ("ctx.missing < 3", False),
        ("ctx.missing == null", True),
        ("ctx.nothing == null", True),
        ("ctx.nothing != null", False),
        ("ctx.yes == true", True),
        ("ctx.yes == 1", False),
        ("ctx.zero == false", False),
        ("ctx.no == false", True),
        ("ctx.missing != true", True),
        ("ctx.yes >= 1", False),
        ("ctx.deep.er.est == 3", True),
        ("ctx.name.er == null", True),
        ("ctx.order-id == '7'", True),
        ("ctx.no || ctx.yes && ctx.no", False),
        ("(ctx.no || ctx.yes) && !ctx.no", True),
        ("ctx.yes || ctx.no && ctx.no", True),
        ("  !  ( ctx.no )\n", True),
        (r'ctx.name == "A\"n"', False),
        ("ctx.deep.text == 'x'&&ctx.total>1", True),
    ],
)
def test_a_guard_holds_as_the_contract_says(text: str, holds: bool) -> None:
    assert parse_guard(text).holds(CTX) is holds


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "total > 1", "ctx", "ctx.", "ctx.a ctx.b", "ctx.a > 'x'", "ctx.a >", "ctx.a = 1",
        "ctx.a == ", "ctx.a == ctx.b", "(ctx.a", "ctx.a)", "ctx.a &&", "|| ctx.a", "ctx.a & ctx.b",
        "ctx.a == tru", "ctx.a == 01", "ctx.a == 1.", "ctx.a == 'x", "ctx.a == \"\\q\"",
        "1 == ctx.a",
        "ctx.a == 1 == 1", "ctx.a > 1 extra", "ctx.a; drop", "ctx..a", "ctx.a == 1e999", "true",
        "ctx.a == null null", "!", "()", "ctx.a > true", "ctx.a\x00",
    ],
)  # fmt: skip
def test_what_is_no_guard_is_refused_to_the_last_character(text: str) -> None:
    with pytest.raises(GuardError):
        parse_guard(text)


def test_nesting_is_bounded_so_that_no_text_can_break_the_parser() -> None:
    deep = "(" * GUARD_DEPTH_MAX + "ctx.a" + ")" * GUARD_DEPTH_MAX
    assert parse_guard(deep).holds({"a": 1})
    for opening in ("(", "!"):
        with pytest.raises(GuardError, match="nested"):
            parse_guard(opening * (GUARD_DEPTH_MAX + 2) + "ctx.a")
    with pytest.raises(GuardError, match="longer"):
        parse_guard("!" * 5_000 + "ctx.a")


@given(st.text(alphabet="ctx.ab =!<>&|()'\"\\01-eE.ntrufals\n", max_size=40))
def test_any_text_is_a_guard_or_a_guard_error(text: str) -> None:
    try:
        guard = parse_guard(text)
    except GuardError:
        return
    assert guard.holds({}) in (True, False)
    assert guard.holds({"a": {"b": 1}, "b": "x"}) in (True, False)


# A guard as a tree, its text, and what it means, without the parser.

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3)
NUMBERS = st.one_of(st.integers(-5, 5), st.sampled_from([0.5, -1.5, 2.0]))
LITERALS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text("ab'\"\\", max_size=3))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text("ab'\"\\", max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
LEAVES = st.one_of(
    st.tuples(st.just("truthy"), PATHS),
    st.tuples(st.sampled_from(["==", "!="]), PATHS, LITERALS),
    st.tuples(st.sampled_from(["<", "<=", ">", ">="]), PATHS, NUMBERS),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.just("!"), inner),
        st.tuples(st.sampled_from(["&&", "||"]), inner, inner),
    ),
    max_leaves=6,
)


def spelled(tree: Any) -> str:
    kind = tree[0]
    if kind == "truthy":
        return "ctx." + ".".join(tree[1])
    if kind == "!":
        return f"!({spelled(tree[1])})"
    if kind in ("&&", "||"):
        return f"({spelled(tree[1])}) {kind} ({spelled(tree[2])})"
    literal = msgspec.json.encode(tree[2]).decode()
    return f"ctx.{'.'.join(tree[1])} {kind} {literal}"


def kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def meant(tree: Any, ctx: Any) -> bool:
    kind = tree[0]
    if kind == "!":
        return not meant(tree[1], ctx)
    if kind == "&&":
        return meant(tree[1], ctx) and meant(tree[2], ctx)
    if kind == "||":
        return meant(tree[1], ctx) or meant(tree[2], ctx)
    value = ctx
    for name in tree[1]:
        value = value.get(name) if isinstance(value, dict) else None
    if kind == "truthy":
        return value not in (None, False, 0, "", [], {})
    wanted = tree[2]
    same = kind_of(value) == kind_of(wanted) and bool(value == wanted)
    if kind in ("==", "!="):
        return same is (kind == "==")
    if kind_of(value) != "number":
        return False
    below = bool(value < wanted)
    return {"<": below, "<=": below or same, ">": not below and not same, ">=": not below}[kind]


@settings(max_examples=400)
@given(TREES, st.dictionaries(NAMES, VALUES, max_size=3))
def test_a_parsed_guard_means_what_its_twin_means(tree: Any, ctx: dict[str, Any]) -> None:
    assert parse_guard(spelled(tree)).holds(ctx) is meant(tree, ctx), spelled(tree)
