"""What README, CONTRIBUTING and the pages of `docs/` say about the source, as findings.

A statement about the source stands on its page once, as a table or in backticks, and is read from
there: a page that the source has left behind fails the tidy test. Links between pages are checked
where the site is built (`make docs`).
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from tests.tidy.source import PACKAGE, REPOSITORY, SOURCE_FOLDERS, Finding, Source

BACKTICKED = re.compile(r"`([^`\n]+)`")
SLASHED = re.compile(r"[\w.-]+(/[\w.-]+)+/?")
FILES_SHOWN_MAX = 3
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


class Page(Source):
    """A page of Markdown."""

    def table(self, *header: str) -> dict[str, list[str]]:
        """The table with this header: first cell of a row -> the other cells."""
        top = "| " + " | ".join(header) + " |\n"
        _, found, rest = self.text.partition(f"\n{top}")
        rows: dict[str, list[str]] = {}
        for line in rest.splitlines()[1:] if found else ():
            if not line.startswith("|"):
                break
            first, *others = (cell.strip() for cell in line.strip("|").split("|"))
            rows[first.strip("`")] = others
        return rows

    def line_of(self, text: str) -> int:
        return self.text[: max(0, self.text.find(text))].count("\n") + 1

    def at(self, text: str, message: str) -> Finding:
        return self.finding(self.line_of(text), message)


def page(name: str) -> Page:
    return Page(PurePosixPath(name), (REPOSITORY / name).read_text(encoding="utf-8"))


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# -- who imports what


def imports(source: Source) -> Iterator[str]:
    """Full names of the modules and names a file imports, wherever in it; `os.environ` too."""
    for plain in source.nodes(ast.Import):
        yield from (alias.name for alias in plain.names)
    for node in source.nodes(ast.ImportFrom):
        if node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    if "environ" in source.text and any(
        name.startswith("os.environ") for _, name in source.names_used
    ):
        yield "os.environ"


def room_of(source: Source) -> str | None:
    """The package directly under `headwater` that the file is in."""
    parts = PurePosixPath(source.inside).parts
    return parts[0] if len(parts) > 1 else None


def rooms_import_what_is_said(said: Page, sources: Iterable[Source]) -> Iterator[Finding]:
    rows = said.table("room", "imports")
    seen: dict[str, set[str]] = {}
    for source in sources:
        if room := room_of(source):
            seen.setdefault(room, set())
            for name in imports(source):
                top, _, rest = name.partition(".")
                if top == "headwater" and rest:
                    seen[room].add(rest.partition(".")[0])
    rooms = set(seen)
    for room in sorted(rooms | set(rows)):
        there = sorted(seen.get(room, set()) & rooms - {room})
        if room not in rows or sorted(BACKTICKED.findall(" ".join(rows[room]))) != there:
            message = f"the row of this table should be: | `{room}` | {quoted(there)} |"
            yield said.at(f"| `{room}` | `", message)


def libraries_are_imported_where_is_said(
    said: Page, sources: Iterable[Source], libraries: Iterable[str]
) -> Iterator[Finding]:
    """Each import is under one of the row's paths, and under each of them there is one."""
    rows = said.table("library", "imported in")
    users: dict[str, set[str]] = defaultdict(set)
    expected = {*libraries, "os.environ"}
    for source in sources:
        for name in imports(source):
            known = name if name == "os.environ" else name.partition(".")[0]
            if known in expected:
                users[known].add(source.inside)
    for library in sorted(set(rows) | set(users)):
        files = users[library]
        (cell,) = rows.get(library, [""])
        places = BACKTICKED.findall(cell)
        strangers = {file for file in files if not any(is_under(file, each) for each in places)}
        idle = {each for each in places if not any(is_under(file, each) for file in files)}
        if not places or strangers or idle:
            few = len(files) <= FILES_SHOWN_MAX
            shown = sorted(files if few else {file.partition("/")[0] for file in files})
            message = f"`{library}` is imported in {quoted(shown) or 'no file'}"
            yield said.at(f"| `{library}` |", message)


def is_under(file: str, place: str) -> bool:
    return PurePosixPath(file).is_relative_to(place)


# -- what exists


def paths_exist(said: Page) -> Iterator[Finding]:
    """Every path of the repository and every Python file of the package in backticks is there.

    A page about the inside may name directories of the package too; elsewhere `wal/shard-00` is
    one of a data directory.
    """
    package = REPOSITORY / PACKAGE
    tops = {*SOURCE_FOLDERS, "docs", "packaging"}
    if said.path.stem == "internals":
        tops |= {path.name for path in package.iterdir()}
    made_later = (REPOSITORY / ".gitignore").read_text(encoding="utf-8").split()
    for token in set(BACKTICKED.findall(said.text)).difference(made_later):
        ours = token.endswith(".py") or token.partition("/")[0] in tops
        if ours and SLASHED.fullmatch(token) and not exists_in(token, REPOSITORY, package):
            yield said.at(f"`{token}`", f"there is no {token}, neither here nor in {PACKAGE}")


def exists_in(path: str, *roots: Path) -> bool:
    return any((root / path).exists() for root in roots)


def names_exist(said: Page, sources: Iterable[Source]) -> Iterator[Finding]:
    """Every `module.name` and `module.Class.name` in backticks is defined in such a module."""
    modules: dict[str, list[Source]] = defaultdict(list)
    for source in sources:
        if source.in_package:
            is_package = source.path.stem == "__init__"
            modules[source.path.parent.name if is_package else source.path.stem].append(source)
    for token in BACKTICKED.findall(said.text):
        if not DOTTED.fullmatch(token) or (REPOSITORY / token).exists() or is_file_name(token):
            continue
        names = token.removeprefix("headwater.").split(".")
        if names[0] in sys.stdlib_module_names - set(modules):
            continue
        if not any(defines(source, names[1:]) for source in modules[names[0]]):
            yield said.at(f"`{token}`", f"no module {names[0]} defines {token}")


def is_file_name(token: str) -> bool:
    return token.rpartition(".")[2] in ("md", "json", "toml", "py", "csv", "log", "oidx")


def defines(source: Source, names: list[str]) -> bool:
    """Whether a module has this name at its top level, or this name in a class of it."""
    body: list[ast.stmt] = source.tree.body
    for name in names:
        match = next((node for node in body if name in names_bound_by(node)), None)
        if match is None:
            return False
        body = match.body if isinstance(match, ast.ClassDef) else []
    return True


def names_bound_by(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name for alias in aliases}
    return set()
