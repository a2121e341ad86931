"""Writes the blocking twins of the awaitable modules. `make twins` runs it.

Each twin is its source, token by token: `async` and `await` are left out, names of awaitable things
become those of their twins, and texts that speak of event loops speak of threads. What cannot be
said so is no business of a source: it stands in a module of its own for each form, under names that
are translated here.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "src" / "headwater"

TWINS: Final[dict[str, str]] = {
    "api/async_face.py": "api/face.py",
    "api/async_machines.py": "api/machines.py",
    "api/async_worker.py": "api/worker.py",
    "client/asynchronous.py": "client/blocking.py",
    "client/http/async_transport.py": "client/http/transport.py",
    "engine/async_database.py": "engine/database.py",
}
"""The source, and what is written from it."""

NAMES: Final[dict[str, str]] = {
    # Python's own, and those of httpx
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclosing": "closing",
    "aiter_bytes": "iter_bytes",
    "anext": "next",
    "aread": "read",
    "aclose": "close",
    # what drives operations
    "drive_awaiting": "drive",
    "follow_awaiting": "follow",
    "AsyncDriver": "BlockingDriver",
    # modules of which there is one for each form
    "async_face": "face",
    "async_machines": "machines",
    "async_worker": "worker",
    "task_crew": "thread_crew",
    # faces, and what they are made of
    "AsyncReadFace": "ReadFace",
    "AsyncFace": "Face",
    "AsyncMachines": "Machines",
    "AsyncMachineCalls": "MachineCalls",
    "AsyncQueueCalls": "QueueCalls",
    "AsyncWorker": "Worker",
    "AsyncHandler": "Handler",
    "AsyncBell": "Bell",
    "AsyncCrew": "Crew",
    "work_async": "work",
    "AsyncDatabase": "Database",
    "AsyncClient": "Client",
    "AsyncHttp": "BlockingHttp",
    "AsyncStream": "BlockingStream",
    "AsyncOpenStream": "OpenStream",
    "AsyncDoStep": "DoStep",
    "AsyncSleep": "Sleep",
    "async_sleep": "blocking_sleep",
    "open_async": "open",
}
TEXTS: Final[dict[str, str]] = {
    "The awaitable client": "The blocking client",
    "The awaitable database": "The blocking database",
    "a program with an event loop": "a program that may block",
    "programs with an event loop": "programs that may block",
    "for event loops": "for threads",
    "await `handler` for each": "give each to `handler`",
}
_WORD: Final = re.compile(r"\w+")
_SPOKEN: Final = (tokenize.STRING, tokenize.COMMENT)


def twin(source: str) -> str:
    """The blocking twin of the module at this path of the package."""
    text = (PACKAGE / source).read_text()
    header = f'# Generated from {source} by "make twins"; change that file, not this one.\n'
    return _formatted(header + translated(text))


def translated(text: str) -> str:
    """The same module without awaiting."""
    lines = text.splitlines(keepends=True)
    edits: list[tuple[int, int, int, str]] = []
    skip_to: tuple[int, int] | None = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        (row, start), (end_row, end) = token.start, token.end
        if skip_to is not None:  # the blank after a word that is left out
            edits.append((skip_to[0], skip_to[1], start, ""))
            skip_to = None
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            skip_to = (row, start)
        elif token.type == tokenize.NAME and token.string in NAMES:
            edits.append((row, start, end, NAMES[token.string]))
        elif token.type in _SPOKEN:
            spoken = _spoken(token.string)
            if spoken != token.string:
                edits += [  # a text of several lines becomes one edit
                    (number, start if number == row else 0, -1, "")
                    for number in range(row, end_row)
                ]
                edits.append((end_row, start if row == end_row else 0, end, spoken))
    for row, start, end, new in reversed(edits):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + new + (line[end:] if end >= 0 else "")
    return "".join(lines)


def _spoken(text: str) -> str:
    for awaitable, blocking in TEXTS.items():
        text = text.replace(awaitable, blocking)
    return _WORD.sub(lambda word: NAMES.get(word[0], word[0]), text)


def _formatted(text: str) -> str:
    """In the house format: without `await`, lines are shorter and imports stand elsewhere."""
    for command in (
        ["check", "--quiet", "--select", "I,F401,UP028", "--fix-only", "--unsafe-fixes"],
        ["format", "--quiet"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", "twin.py", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


def main() -> None:
    for source, target in TWINS.items():
        (PACKAGE / target).write_text(twin(source))


if __name__ == "__main__":
    main()
