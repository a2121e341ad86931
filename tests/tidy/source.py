"""A source file as the tidy rules see it: where it stands, its text, its tree, its names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE_FOLDERS = ("src", "tests", "bench", "examples")
PACKAGE = PurePosixPath("src/headwater")


class Finding(NamedTuple):
    """One offence, printed as editors like to read it."""

    path: PurePosixPath
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Source:
    """One Python file. The path is relative to the repository, with forward slashes."""

    path: PurePosixPath
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @property
    def in_package(self) -> bool:
        return self.path.is_relative_to(PACKAGE)

    @property
    def is_test(self) -> bool:
        return self.path.parts[0] == "tests"

    @property
    def inside(self) -> str:
        """Where the file stands in the package: `wal/shard.py`. Empty outside the package."""
        return str(self.path.relative_to(PACKAGE)) if self.in_package else ""

    @cached_property
    def imported(self) -> dict[str, str]:
        """Local name -> what it stands for, from every import statement in the file."""
        names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    names[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return names

    @cached_property
    def names_used(self) -> list[tuple[ast.expr, str]]:
        """Every name that is read, spelled in full whatever it was imported as.

        References count as well as calls: `now=time.monotonic` as a default argument is a
        use of the clock. Of `os.path.join` only the longest spelling is listed.
        """
        inner = {node.value for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}
        return [
            (node, name)
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.Name, ast.Attribute)) and node not in inner
            if (name := self._spelled_out(node)) is not None
        ]

    def _spelled_out(self, node: ast.expr) -> str | None:
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        return ".".join([self.imported.get(node.id, node.id), *reversed(attributes)])

    def spelled_out(self, node: ast.expr) -> str:
        """The full name of an expression that is a name, or an empty string."""
        return self._spelled_out(node) or ""

    def finding(self, node: ast.stmt | ast.expr | ast.excepthandler | int, message: str) -> Finding:
        line = node if isinstance(node, int) else node.lineno
        return Finding(self.path, line, message)


def every_source() -> Iterator[Source]:
    """All Python files of the repository. Rooms that are not built yet are simply absent."""
    for folder in SOURCE_FOLDERS:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            relative = PurePosixPath(path.relative_to(REPOSITORY).as_posix())
            yield Source(relative, path.read_text(encoding="utf-8"))
