"""A machine's definition: states, where to begin, and what leads from one to the next, if its guard
holds.

Guards are small conditions over an instance's context, parsed once, to the end of their text:

```
guard      = any
any        = all ( "||" all )*
all        = not ( "&&" not )*
not        = "!" not | "(" any ")" | comparison
comparison = path [ ("==" | "!=") literal | ("<" | "<=" | ">" | ">=") number ]
path       = "ctx" ( "." name )+
literal    = "true" | "false" | "null" | text in quotes | number
```

A field that is missing equals null. A path alone holds unless it is missing, null, false, 0 or
empty. An ordering holds between numbers only. True is not the number 1.
"""

from __future__ import annotations

import hashlib
import math
import operator
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from headwater.core.limits import INTEGER_MAX, NAME_PATTERN
from headwater.model.machines.errors import MachineError, bad_request
from headwater.model.machines.values import checked_text, object_bytes

Condition = Callable[[Mapping[str, Any]], bool]

GUARD_CHARACTERS_MAX: Final = 4_096
GUARD_DEPTH_MAX: Final = 64

_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<path>ctx(?:\.[A-Za-z0-9_][A-Za-z0-9_-]*)+)
      | (?P<word>true|false|null)(?![A-Za-z0-9_.])
      | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![A-Za-z0-9_.])
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<sign>\|\||&&|==|!=|<=|>=|<|>|!|\(|\))
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_WORDS: Final = {"true": True, "false": False, "null": None}
_ORDERINGS: Final = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class GuardError(ValueError):
    """The text is no guard; the message says where and why."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Guard:
    text: str
    holds: Condition


def parse_guard(text: str) -> Guard:
    """The guard, or GuardError. Nothing may be left over behind it."""
    if len(text) > GUARD_CHARACTERS_MAX:
        raise GuardError(f"longer than {GUARD_CHARACTERS_MAX} characters")
    parser = _Parser(_tokens(text))
    condition = parser.any(0)
    parser.expect_end()
    return Guard(text, condition)


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if not text[at:].strip(" \t\r\n"):
                break
            raise GuardError(f"not understood from character {at + 1} on: {text[at : at + 20]!r}")
        kind = match.lastgroup
        assert kind is not None
        tokens.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    tokens.append(_Token("end", "the end", len(text)))
    return tokens


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def any(self, depth: int) -> Condition:
        parts = [self._all(depth)]
        while self._take("||"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else lambda ctx: any(part(ctx) for part in parts)

    def expect_end(self) -> None:
        if self._next.kind != "end":
            raise self._unexpected("the end")

    def _all(self, depth: int) -> Condition:
        parts = [self._not(depth)]
        while self._take("&&"):
            parts.append(self._not(depth))
        return parts[0] if len(parts) == 1 else lambda ctx: all(part(ctx) for part in parts)

    def _not(self, depth: int) -> Condition:
        if depth > GUARD_DEPTH_MAX:
            raise GuardError(f"nested deeper than {GUARD_DEPTH_MAX}")
        if self._take("!"):
            inner = self._not(depth + 1)
            return lambda ctx: not inner(ctx)
        if self._take("("):
            inner = self.any(depth + 1)
            if not self._take(")"):
                raise self._unexpected("')'")
            return inner
        return self._comparison()

    def _comparison(self) -> Condition:
        token = self._next
        if token.kind != "path":
            raise self._unexpected("a field such as ctx.total, '!' or '('")
        self._at += 1
        read_field = _reader(tuple(token.text.split(".")[1:]))
        sign = self._next.text if self._next.kind == "sign" else ""
        if sign in ("==", "!="):
            self._at += 1
            return _equality(read_field, self._literal(), wanted=sign == "==")
        if sign in _ORDERINGS:
            self._at += 1
            return _ordering(read_field, _ORDERINGS[sign], self._number())
        return lambda ctx: bool(read_field(ctx))

    def _literal(self) -> object:
        token = self._next
        if token.kind == "word":
            self._at += 1
            return _WORDS[token.text]
        if token.kind == "text":
            self._at += 1
            return _unquote(token)
        if token.kind == "number":
            return self._number()
        raise self._unexpected("true, false, null, a number or a text in quotes")

    def _number(self) -> int | float:
        token = self._next
        if token.kind != "number":
            raise self._unexpected("a number")
        self._at += 1
        text = token.text
        if text.lstrip("-").isdigit():
            return int(text)
        number = float(text)
        if not math.isfinite(number):
            raise GuardError(f"the number at character {token.at + 1} is too large")
        return number

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, sign: str) -> bool:
        if self._next.kind == "sign" and self._next.text == sign:
            self._at += 1
            return True
        return False

    def _unexpected(self, wanted: str) -> GuardError:
        token = self._next
        return GuardError(f"expected {wanted} at character {token.at + 1}, found {token.text}")


def _unquote(token: _Token) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise GuardError(f"unknown escape \\{match[1]} in the text at character {token.at + 1}")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", plain, token.text[1:-1], flags=re.DOTALL)


def _reader(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], Any]:
    if len(names) == 1:
        (name,) = names
        return lambda ctx: ctx.get(name)

    def read(ctx: Mapping[str, Any]) -> Any:
        value: Any = ctx
        for name in names:
            if not isinstance(value, Mapping):
                return None
            value = value.get(name)
        return value

    return read


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _equality(
    read_field: Callable[[Mapping[str, Any]], Any], literal: object, *, wanted: bool
) -> Condition:
    if literal is None or isinstance(literal, bool):
        return lambda ctx: (read_field(ctx) is literal) is wanted
    if isinstance(literal, str):

        def equals(ctx: Mapping[str, Any]) -> bool:
            value = read_field(ctx)
            return (isinstance(value, str) and value == literal) is wanted

        return equals

    def amounts_to(ctx: Mapping[str, Any]) -> bool:
        value = read_field(ctx)
        return (is_number(value) and value == literal) is wanted

    return amounts_to


def _ordering(
    read_field: Callable[[Mapping[str, Any]], Any],
    compare: Callable[[Any, Any], bool],
    number: int | float,
) -> Condition:
    def holds(ctx: Mapping[str, Any]) -> bool:
        value = read_field(ctx)
        return is_number(value) and compare(value, number)

    return holds


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
