"""Knots: modules that import each other, round about or directly.

Every import statement counts, those for type checkers and those inside functions too: whoever
wants to understand a module has to read what it names, whenever that is loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping

from tests.tidy.source import PACKAGE, Source

Knot = frozenset[str]


def imports_of(sources: Iterable[Source]) -> dict[str, set[str]]:
    """For each module of the package, the modules of the package that it names."""
    modules = {module_name(source): source for source in sources if source.in_package}
    return {name: _imported(name, source, modules) for name, source in modules.items()}


def module_name(source: Source) -> str:
    parts = source.path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _imported(name: str, source: Source, modules: Collection[str]) -> set[str]:
    named: set[str] = set()
    for plain in source.nodes(ast.Import):
        named |= {alias.name for alias in plain.names}
    for node in source.nodes(ast.ImportFrom):
        if node.module:
            named |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {_nearest(each, modules) for each in named} - {name, ""}


def _nearest(name: str, modules: Collection[str]) -> str:
    """The module that a dotted name is, or is in; empty for those of others."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def knots(imports: Mapping[str, Collection[str]]) -> set[Knot]:
    """The sets of modules each of which can be reached from each of the others."""
    reached = {name: _reached(name, imports) for name in imports}
    found = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in imports
        if name in reached[name]
    }
    return {knot for knot in found if len(knot) > 1}


def _reached(start: str, imports: Mapping[str, Collection[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        new = set(imports[waiting.pop()]) - reached
        reached |= new
        waiting += new
    return reached
