"""Groups of verbs that are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command

from headwater.cli.friendly_groups import FriendlyCommand, FriendlyGroup
from headwater.cli.output import say

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
    alone.command(name, cls=FriendlyCommand)(loaded)
    return alone
