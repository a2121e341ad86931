"""`headwater completion`: the script that teaches a shell the verbs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer
from typer._completion_shared import get_completion_script

from headwater.cli.output import say

PROGRAM: Final = "headwater"
VARIABLE: Final = "_HEADWATER_COMPLETE"
"""Set by the script, and read by every run of the program."""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the completion script of a shell; no file is changed.

    For instance, in ~/.bashrc: source <(headwater completion bash)
    """
    say(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value))
