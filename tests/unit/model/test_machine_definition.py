"""Definitions and the transitions they allow."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.model.machines.definition import parse_definition
from headwater.model.machines.errors import MachineError, machine_code
from headwater.model.machines.instance import Instance, choose, merged
from headwater.model.machines.values import DEPTH_MAX, VALUE_BYTES_MAX, object_bytes
from tests.rig.machines import ORDER


def refused(given: Any, name: Any = "order", version: Any = 1) -> str:
    with pytest.raises(MachineError) as caught:
        parse_definition(name, version, given, strict=True)
    assert caught.value.code == "BAD_REQUEST"
    return str(caught.value)


def changed(**fields: Any) -> dict[str, Any]:
    return {**ORDER, **fields}


def transition(**fields: Any) -> dict[str, Any]:
    given = {"from": "new", "event": "E", "to": "paid", **fields}
    given = {name: value for name, value in given.items() if value is not ...}
    return changed(transitions=[given])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "JSON object"),
        (changed(states=[]), "states must be"),
        (changed(states="new"), "states must be"),
        (changed(states=["new", "new"]), "twice"),
        (changed(states=["new", 3]), "a state must be"),
        (changed(states=["new", "a\nb"]), "control"),
        (changed(initial="old"), "initial"),
        (changed(initial=None), "initial"),
        (changed(transitions={}), "transitions must be a list"),
        (changed(transitions=["x"]), "transition 1: must be"),
        (changed(meta=[]), "meta"),
        (changed(gaurds=[]), "unknown fields: 'gaurds'"),
        (transition(to="nowhere"), "transition 1: 'nowhere' is not among the states"),
        (transition(**{"from": ["new", "x"]}), "'x' is not among"),
        (transition(**{"from": []}), "from must be"),
        (transition(event=""), "event"),
        (transition(event="$migrate"), "migrations"),
        (transition(guard="ctx.a >"), "guard 'ctx.a >'"),
        (transition(guard=3), "guard must be a text"),
        (transition(gaurd="ctx.a"), "unknown fields: 'gaurd'"),
    ],
)
def test_a_bad_definition_is_refused_with_what_is_wrong(given: Any, says: str) -> None:
    assert says in refused(given)


@pytest.mark.parametrize("name", ["", "a/b", "..", "ä", "x" * 256, 3, None, ".hidden"])
def test_a_name_that_could_be_a_path_is_refused(name: Any) -> None:
    assert "machine's name" in refused(ORDER, name=name)


@pytest.mark.parametrize("version", [0, -1, 1.5, True, "1", None])
def test_versions_are_whole_numbers_from_one(version: Any) -> None:
    assert "version" in refused(ORDER, version=version)


def test_an_alternative_behind_an_unguarded_one_is_refused() -> None:
    two = [{"from": "new", "event": "E", "to": "paid"}, {"from": "new", "event": "E", "to": "new"}]
    assert "can never happen" in refused(changed(transitions=two))


def instance(state: str = "new", ctx: bytes = b"{}") -> Instance:
    return Instance("i", "m", 1, state, ctx, 0, 0, 0)


def test_guarded_alternatives_are_tried_in_order_and_the_unguarded_is_the_fallback() -> None:
    definition = parse_definition(
        "m",
        1,
        changed(
            transitions=[
                {"from": "new", "event": "E", "to": "shipped", "guard": "ctx.n > 10"},
                {"from": "new", "event": "E", "to": "paid", "guard": "ctx.n > 5"},
                {"from": "new", "event": "E", "to": "closed"},
            ]
        ),
    )
    chosen = [choose(definition, instance(ctx=b'{"n":%d}' % n), "E").to_state for n in (11, 6, 1)]
    assert chosen == ["shipped", "paid", "closed"]


def test_an_event_that_leads_nowhere_says_what_would_lead_somewhere() -> None:
    definition = parse_definition("m", 1, ORDER)
    with pytest.raises(MachineError, match="possible here: PAY") as caught:
        choose(definition, instance(), "SHIP")
    assert caught.value.code == "INVALID_TRANSITION"
    with pytest.raises(MachineError) as caught:
        choose(definition, instance(ctx=b'{"total":0}'), "PAY")
    assert caught.value.code == "GUARD_FAILED"
    assert caught.value.details["guards"] == ["ctx.total > 0"]


def test_equal_definitions_have_equal_checksums_whatever_their_order() -> None:
    turned = dict(reversed(ORDER.items()))
    first, second = parse_definition("m", 1, ORDER), parse_definition("m", 1, turned)
    assert first.checksum == second.checksum
    assert first.canonical == second.canonical


def test_a_payload_is_merged_one_level_deep() -> None:
    ctx = object_bytes({"a": {"x": 1}, "b": 1}, "ctx")
    assert merged(ctx, {"a": {"y": 2}, "c": 3}) == b'{"a":{"y":2},"b":1,"c":3}'
    assert merged(ctx, None) is ctx


def test_values_too_large_or_too_deep_are_refused() -> None:
    deep: Any = {}
    for _ in range(DEPTH_MAX + 1):
        deep = {"a": deep}
    for value, says in (
        ({"a": "x" * VALUE_BYTES_MAX}, "bytes"),
        (deep, "nested"),
        ({"a": object()}, "JSON"),
        ([1], "JSON object"),
    ):
        with pytest.raises(MachineError, match=says):
            object_bytes(value, "the context")
    wide = {"rows": [{"n": n} for n in range(500)]}
    assert object_bytes(wide, "the context")


def test_every_error_has_a_code_of_the_contract() -> None:
    from headwater.core import errors

    expected = {
        errors.OverloadedError("x"): ("RATE_LIMITED", True),
        errors.DiskFullError("x"): ("WAL_IO_ERROR", True),
        errors.PoisonedError("x"): ("WAL_IO_ERROR", False),
        errors.InvariantError("x"): ("INTERNAL_ERROR", False),
        errors.InvalidRequestError("x"): ("BAD_REQUEST", False),
        MachineError("CONFLICT", "x"): ("CONFLICT", False),
    }
    for error, code in expected.items():
        assert machine_code(error) == code
