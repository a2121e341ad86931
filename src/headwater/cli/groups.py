"""Groups of verbs that are imported when they are used, and whose failures become one line and an
exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from headwater.cli.exit_codes import run_and_exit
from headwater.cli.option_groups import spread_groups
from headwater.cli.output import say
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


Verbs = Mapping[str, str | typer.Typer]
"""Name to "module:name there", or to a group."""


def late_group(verbs: Verbs) -> type[FriendlyGroup]:
    """A class of groups with these verbs, in this order."""

    class LateGroup(FriendlyGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(verbs)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            target = verbs.get(cmd_name)
            if target is None:
                close = get_close_matches(cmd_name, verbs)
                if close and not ctx.resilient_parsing:
                    meant = " or ".join(f"'{each}'" for each in close)
                    ctx.fail(f"No such command '{cmd_name}'. Did you mean {meant}?")
                return None
            command = get_command(_app_of(target, cmd_name))
            command.name = cmd_name
            return command

    return LateGroup


def verb_group(help_text: str, verbs: Verbs) -> typer.Typer:
    """A verb that only has verbs below it."""
    group = typer.Typer(
        cls=late_group(verbs), help=help_text, rich_markup_mode="markdown", add_completion=False
    )
    group.callback(invoke_without_command=True)(help_when_alone)
    return group


def help_when_alone(context: typer.Context) -> None:
    """A forgotten verb gets the list of verbs, and an exit code that scripts notice."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:
            say(text)
        raise typer.Exit(2)


def _app_of(target: str | typer.Typer, name: str) -> typer.Typer:
    if isinstance(target, typer.Typer):
        return target
    module, _, there = target.partition(":")
    loaded = getattr(import_module(module), there)
    if isinstance(loaded, typer.Typer):
        return loaded
    alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    alone.command(name, cls=FriendlyCommand)(spread_groups(loaded))
    return alone
