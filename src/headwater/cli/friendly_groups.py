"""Groups of verbs whose failures become one line and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from headwater.cli.exit_codes import run_and_exit
from headwater.core.errors import RequestError


class FriendlyCommand(TyperCommand):
    """A verb. When its arguments are wrong, the error names its own help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            # The parser that misses a value does not know which verb it parses for.
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        return _switches_take_no_value(super().get_params(ctx))


class FriendlyGroup(TyperGroup):
    """A group of verbs whose failures are one line on stderr."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _switches_take_no_value(super().get_params(ctx))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        name = prog_name or "headwater" if standalone_mode else prog_name
        act = super().main

        def work() -> Any:
            return act(args, name, complete_var, False, windows_expand_args, **extra)

        if standalone_mode:
            run_and_exit(lambda: _in_our_words(work))
        return work()


def _switches_take_no_value(parameters: list[Any]) -> list[Any]:
    """Help shows a type beside an option; beside a switch it looks like something to type."""
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return parameters


def _in_our_words(work: Any) -> Any:
    try:
        return work()
    except typer.TyperException as error:
        raise RequestError(_usage(error)) from error
    except typer.Abort:
        raise KeyboardInterrupt from None


def _usage(error: typer.TyperException) -> str:
    message = error.format_message().strip().rstrip(".")
    context = getattr(error, "ctx", None)
    verb = context.command_path if context is not None else "headwater"
    then = " See" if message.endswith("?") else "; see"
    return f"{message[:1].lower()}{message[1:]}{then} `{verb} --help`"
