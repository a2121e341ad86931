"""Exit codes: every error becomes one line and an exit code.

`HeadwaterError` brings its own code. A wrong option is the caller's (2), Ctrl-C is 130, a reader
who went away (`| head`) is 141 and silent, as for a program that died of SIGPIPE. Anything else
is a bug and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from headwater.cli.output import OutputClosedError, accept_any_character, complain, finish
from headwater.core.errors import HeadwaterError

EXIT_INTERRUPTED: Final = 130
EXIT_READER_LEFT: Final = 141
ADVICE: Final = {
    "unauthorized": "; give one with HEADWATER_TOKEN, --token or `headwater context add`",
    "unreachable": " `headwater serve` starts one",
    "unexpected_answer": ": --url, HEADWATER_URL or the context in use",
}
"""What the user of a terminal can do about a code, after the library's message."""


def run_and_exit(work: Callable[[], object]) -> NoReturn:
    """Do the work, end the process. A number that the work gives is the exit code."""
    accept_any_character()
    try:
        code = work()
        finish()
    except OutputClosedError:
        code = EXIT_READER_LEFT
    except HeadwaterError as error:
        code = _explain(f"{error}{ADVICE.get(error.code, '')}", error.exit_code)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)


def _explain(message: str, exit_code: int) -> int:
    """What was printed so far comes first, then the line that says why there is no more."""
    with contextlib.suppress(HeadwaterError, OutputClosedError):
        finish()
    complain(message)
    return exit_code
