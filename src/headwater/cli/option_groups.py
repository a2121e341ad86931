"""Options that several verbs share, declared once.

A group is a frozen dataclass whose fields are options, or groups again. A verb takes it as one
parameter (`call: ServerCall = ANY_SERVER`); on the command line and in the help its options stand
where that parameter stands.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from inspect import Parameter
from typing import Annotated, Any, get_type_hints

import msgspec
import typer

from headwater.cli.output import say, say_json

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@dataclass(frozen=True)
class AnswerOptions:
    """How a verb prints what it was answered."""

    as_json: JsonOption = False

    def say(self, answer: msgspec.Struct | Mapping[str, Any], line: str) -> None:
        """Everything that was answered, or one line for people."""
        if not self.say_json(answer):
            say(line)

    def say_json(self, *answers: msgspec.Struct | Mapping[str, Any]) -> bool:
        """One object a line, if programs are to read it. False: people are, nothing was printed."""
        if self.as_json:
            for each in answers:
                say_json(msgspec.to_builtins(each))
        return self.as_json


def spread_groups(verb: Callable[..., None]) -> Callable[..., None]:
    """The same verb with every option as a parameter of its own, for typer."""
    parameters = inspect.signature(verb, eval_str=True).parameters.values()
    options = [option for each in parameters for option in _options(each)]

    def run(**given: Any) -> None:
        verb(**{each.name: _value(each, given) for each in parameters})

    run.__doc__ = verb.__doc__
    run.__annotations__ = {each.name: each.annotation for each in options}
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run


def _members(parameter: Parameter) -> list[Parameter] | None:
    if not (isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)):
        return None
    kinds = get_type_hints(parameter.annotation, include_extras=True)
    fields = inspect.signature(parameter.annotation).parameters.values()
    return [field.replace(annotation=kinds[field.name]) for field in fields]


def _options(parameter: Parameter) -> Iterator[Parameter]:
    members = _members(parameter)
    if members is None:
        yield parameter
    else:
        for each in members:
            yield from _options(each)


def _value(parameter: Parameter, given: dict[str, Any]) -> Any:
    members = _members(parameter)
    if members is None:
        return given[parameter.name]
    return parameter.annotation(**{each.name: _value(each, given) for each in members})
