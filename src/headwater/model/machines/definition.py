"""A machine's definition: states, where to begin, and what leads from one to the next."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headwater.core.limits import INTEGER_MAX, NAME_PATTERN
from headwater.model.machines.errors import MachineError, bad_request
from headwater.model.machines.guard import Guard, GuardError, parse_guard
from headwater.model.machines.values import checked_text, object_bytes

_decode: Final = msgspec.json.Decoder().decode
_FIELDS: Final = frozenset(("states", "initial", "transitions", "meta"))
_TRANSITION_FIELDS: Final = frozenset(("from", "event", "to", "guard", "meta"))
STATES_MAX: Final = 10_000
TRANSITIONS_MAX: Final = 100_000
MIGRATION_EVENT: Final = "$migrate"
"""The event a migration is recorded as. Definitions may not use it."""


@dataclass(frozen=True, slots=True)
class Transition:
    event: str
    to_state: str
    guard: Guard | None


@dataclass(frozen=True, slots=True)
class Definition:
    machine: str
    version: int
    initial: str
    states: Mapping[str, str]
    """Each state to the one text that stands for it, so that instances share it."""
    table: Mapping[str, Mapping[str, tuple[Transition, ...]]]
    """State, then event, to the alternatives in the order they are tried."""
    canonical: bytes
    """The definition as JSON with sorted keys."""
    checksum: str
    """SHA-256 of `canonical`, in hex."""

    def events_of(self, state: str) -> list[str]:
        return sorted(self.table.get(state, ()))


def check_machine_name(name: object) -> str:
    if not isinstance(name, str) or NAME_PATTERN.fullmatch(name) is None:
        raise bad_request(
            "a machine's name has 1 to 255 of the characters A-Z a-z 0-9 . _ : - "
            "and begins with a letter or digit"
        )
    return sys.intern(name)


def check_version(version: object) -> int:
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= INTEGER_MAX:
        raise bad_request("a version is a whole number, 1 or more")
    return version


def parse_definition(
    machine: object, version: object, given: object, *, strict: bool = False
) -> Definition:
    """The checked definition; MachineError BAD_REQUEST says what is wrong with it. Fields that are
    not known are kept, or refused when it is `strict`."""
    name, number = check_machine_name(machine), check_version(version)
    canonical = object_bytes(given, "the definition")
    assert isinstance(given, dict)
    unknown = sorted(set(given) - _FIELDS)
    if unknown and strict:
        raise bad_request(f"the definition has unknown fields: {', '.join(map(repr, unknown))}")
    states = _states(given.get("states"))
    initial = given.get("initial")
    if not isinstance(initial, str) or initial not in states:
        raise bad_request(f"initial must be one of the states, not {initial!r}")
    if not isinstance(given.get("meta"), dict | None):
        raise bad_request("meta must be a JSON object")
    return Definition(
        name,
        number,
        states[initial],
        states,
        _table(given.get("transitions"), states, strict),
        canonical,
        hashlib.sha256(canonical).hexdigest(),
    )


def same_definition(one: Definition, other: Definition) -> bool:
    """True for two ways of writing the same: `"from": "a"` is `["a"]`, and null is as if left
    out."""
    if one.checksum == other.checksum:
        return True
    return _plain(one.canonical) == _plain(other.canonical)


def _plain(canonical: bytes) -> dict[str, Any]:
    definition: dict[str, Any] = _decode(canonical)
    plain = {name: value for name, value in definition.items() if value is not None}
    plain["transitions"] = [
        {
            name: [value] if name == "from" and isinstance(value, str) else value
            for name, value in each.items()
            if value is not None
        }
        for each in definition["transitions"]
    ]
    return plain


def _states(given: object) -> dict[str, str]:
    if not isinstance(given, list) or not given:
        raise bad_request("states must be a list of one or more texts")
    if len(given) > STATES_MAX:
        raise bad_request(f"more than {STATES_MAX} states")
    states = {checked_text(state, "a state"): sys.intern(state) for state in given}
    if len(states) != len(given):
        raise bad_request("a state is listed twice")
    return states


def _table(
    given: object, states: Mapping[str, str], strict: bool
) -> dict[str, dict[str, tuple[Transition, ...]]]:
    if not isinstance(given, list):
        raise bad_request("transitions must be a list")
    if len(given) > TRANSITIONS_MAX:
        raise bad_request(f"more than {TRANSITIONS_MAX} transitions")
    transitions: dict[str, dict[str, list[Transition]]] = {}
    guards: dict[str, Guard] = {}
    for number, each in enumerate(given, start=1):
        try:
            froms, transition = _transition(each, states, guards, strict)
        except MachineError as error:
            raise bad_request(f"transition {number}: {error}", transition=number) from error
        for state in froms:
            alternatives = transitions.setdefault(state, {}).setdefault(transition.event, [])
            if alternatives and alternatives[-1].guard is None:
                raise bad_request(
                    f"transition {number} can never happen: from {state!r} on "
                    f"{transition.event!r} an earlier one has no guard",
                    transition=number,
                )
            alternatives.append(transition)
    return {
        state: {event: tuple(tried) for event, tried in events.items()}
        for state, events in transitions.items()
    }


def _transition(
    given: Any, states: Mapping[str, str], guards: dict[str, Guard], strict: bool
) -> tuple[list[str], Transition]:
    if not isinstance(given, dict):
        raise bad_request("must be a JSON object")
    unknown = sorted(set(given) - _TRANSITION_FIELDS)
    if unknown and strict:
        raise bad_request(f"unknown fields: {', '.join(map(repr, unknown))}")
    froms = given.get("from")
    froms = [froms] if isinstance(froms, str) else froms
    if not isinstance(froms, list) or not froms:
        raise bad_request("from must be a state or a list of states")
    for state in (*froms, given.get("to")):
        if not isinstance(state, str) or state not in states:
            raise bad_request(f"{state!r} is not among the states")
    event = checked_text(given.get("event"), "the event")
    if event == MIGRATION_EVENT:
        raise bad_request(f"{MIGRATION_EVENT} is what migrations are recorded as")
    guard = given.get("guard")
    if guard is not None:
        guard = _guard(guard, guards)
    unique = [states[state] for state in dict.fromkeys(froms)]
    return unique, Transition(sys.intern(event), states[given["to"]], guard)


def _guard(text: object, known: dict[str, Guard]) -> Guard:
    if not isinstance(text, str):
        raise bad_request("guard must be a text")
    if text not in known:
        try:
            known[text] = parse_guard(text)
        except GuardError as error:
            raise bad_request(f"guard {text!r}: {error}", guard=text) from error
    return known[text]
