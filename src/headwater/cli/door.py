"""The way out: every error becomes one line and an exit code.

`HeadwaterError` brings its own code. A wrong option is the caller's (2), Ctrl-C is 130, a reader
who went away (`| head`) is 141 and silent, as for a program that died of SIGPIPE. Anything else
is a bug and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any, Final

import typer
from typer.core import TyperGroup

from headwater.cli.output import OutputClosedError, accept_any_character, complain, finish
from headwater.core.errors import HeadwaterError, RequestError

EXIT_INTERRUPTED: Final = 130
EXIT_READER_LEFT: Final = 141


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
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        accept_any_character()
        try:
            code = super().main(
                args, prog_name or "headwater", complete_var, False, windows_expand_args, **extra
            )
            finish()
        except OutputClosedError:
            code = EXIT_READER_LEFT
        except HeadwaterError as error:
            code = _explain(str(error), error.exit_code)
        except typer.TyperException as error:
            code = _explain(_usage(error), RequestError.exit_code)
        except (KeyboardInterrupt, typer.Abort):
            code = EXIT_INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)


def _explain(message: str, exit_code: int) -> int:
    """What was printed so far comes first, then the line that says why there is no more."""
    with contextlib.suppress(HeadwaterError, OutputClosedError):
        finish()
    complain(message)
    return exit_code


def _usage(error: typer.TyperException) -> str:
    message = error.format_message().strip().rstrip(".")
    context = getattr(error, "ctx", None)
    verb = context.command_path if context is not None else "headwater"
    then = " See" if message.endswith("?") else "; see"
    return f"{message[:1].lower()}{message[1:]}{then} `{verb} --help`"
