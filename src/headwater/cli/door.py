"""Groups of verbs whose failures leave as `headwater.cli.leaving` says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from headwater.cli.leaving import leave_after
from headwater.core.errors import RequestError


class FriendlyGroup(TyperGroup):
    """A group of verbs whose failures are one line on stderr."""

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
            leave_after(lambda: _in_our_words(work))
        return work()


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
