"""A source file as the tidy rules see it: where it stands, its text, its tree, its names."""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE_FOLDERS = ("src", "tests", "bench", "examples")
PACKAGE = PurePosixPath("src/headwater")
N = TypeVar("N", bound=ast.AST)


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

    def parse(self) -> None:
        """Now, for all that ask later."""
        assert self._nodes_by_kind

    @cached_property
    def _nodes_by_kind(self) -> dict[type[ast.AST], list[Any]]:
        nodes: dict[type[ast.AST], list[Any]] = defaultdict(list)
        for node in ast.walk(self.tree):
            nodes[type(node)].append(node)
        return nodes

    def nodes(self, *kinds: type[N]) -> Iterator[N]:
        """Those of the first kind, then those of the next; a rule need not walk the tree."""
        for kind in kinds:
            yield from self._nodes_by_kind.get(kind, ())

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
        for node in self.nodes(ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        for named in self.nodes(ast.ImportFrom):
            if named.module and not named.level:
                for alias in named.names:
                    names[alias.asname or alias.name] = f"{named.module}.{alias.name}"
        return names

    @cached_property
    def names_used(self) -> list[tuple[ast.expr, str]]:
        """Every name that is read, spelled in full whatever it was imported as.

        References count as well as calls: `now=time.monotonic` as a default argument is a
        use of the clock. Of `os.path.join` only the longest spelling is listed.
        """
        inner = {node.value for node in self.nodes(ast.Attribute)}
        return [
            (node, name)
            for node in self.nodes(ast.Name, ast.Attribute)
            if node not in inner
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


@cache
def every_source() -> tuple[Source, ...]:
    """All Python files of the repository, each read and parsed once for all rules. Rooms that are
    not built yet are absent."""
    sources = tuple(
        Source(PurePosixPath(path.relative_to(REPOSITORY).as_posix()), path.read_text("utf-8"))
        for folder in SOURCE_FOLDERS
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
    )
    # The trees are a million objects and no garbage: looking for some takes longer than parsing.
    gc.disable()
    try:
        for source in sources:
            source.parse()
    finally:
        gc.enable()
    return sources
