"""Options that several verbs share, declared once.

A group is a frozen dataclass whose fields are options, or groups again. A verb takes it as one
parameter (`server: ServerOptions = ANY_SERVER`); on the command line and in the help its options
stand where that parameter stands.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from inspect import Parameter
from typing import Any


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
    return list(inspect.signature(parameter.annotation, eval_str=True).parameters.values())


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
