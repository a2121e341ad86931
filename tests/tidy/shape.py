"""Rules about the shape of a file: its size, its name, its opening words, its leftovers."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from tests.tidy.source import Finding, Source

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
TEST_NAME_WORDS_MIN = 4

# Names that say nothing, so everything ends up in them.
EMPTY_WORDS = frozenset(
    ("util", "utils", "helper", "helpers", "common", "manager", "managers", "misc", "stuff")
)
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# A path that exists on one machine only, or an option that names a package registry.
MACHINE = re.compile(r"(?<![\w.])/(root|home|Users)/\w|--(extra-)?index[-]url|--find[-]links")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def functions(source: Source) -> Iterator[FunctionNode]:
    yield from source.nodes(ast.FunctionDef)
    yield from source.nodes(ast.AsyncFunctionDef)


def files_are_small(source: Source) -> Iterator[Finding]:
    lines = len(source.text.splitlines())
    if lines > FILE_LINES_MAX:
        yield source.finding(lines, f"{lines} lines; split the file ({FILE_LINES_MAX} at most)")


def functions_are_small(source: Source) -> Iterator[Finding]:
    for node in functions(source):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            message = f"{node.name} has {lines} lines ({FUNCTION_LINES_MAX} at most)"
            yield source.finding(node, message)


def modules_open_with_a_docstring(source: Source) -> Iterator[Finding]:
    if source.text.strip() and not ast.get_docstring(source.tree):
        yield source.finding(1, "open the module with a docstring that says what it is for")


def module_names_say_something(source: Source) -> Iterator[Finding]:
    for part in (*source.path.parent.parts, source.path.stem):
        if EMPTY_WORDS.intersection(part.lower().split("_")):
            yield source.finding(1, f"'{part}' says nothing; name the file after what it holds")


def package_doors_only_re_export(source: Source) -> Iterator[Finding]:
    """An `__init__.py` holds a docstring, imports, late or not, and `__all__`: nothing to break."""
    if source.path.name != "__init__.py":
        return
    allowed = {"__getattr__", "__all__"}
    for node in source.tree.body:
        match node:
            case ast.Import() | ast.ImportFrom():
                continue
            case ast.Expr(value=ast.Constant(value=str())) if node is source.tree.body[0]:
                continue
            case ast.Assign(targets=[ast.Name(id=name)]) if name in allowed:
                continue
            case ast.AnnAssign(target=ast.Name(id=name)) if name in allowed:
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]) if all(
                isinstance(each, ast.Import | ast.ImportFrom) for each in body
            ):
                continue  # how a type checker sees names that are imported late
        yield source.finding(node, "__init__ only re-exports; move this into a module")


def each_test_is_a_sentence(source: Source) -> Iterator[Finding]:
    if not source.is_test:
        return
    for node in functions(source):
        if not node.name.startswith("test"):
            continue
        words = [word for word in node.name.removeprefix("test").split("_") if word]
        if len(words) < TEST_NAME_WORDS_MIN:
            message = f"{node.name}: name the outcome, as a sentence of four words or more"
            yield source.finding(node, message)


def nothing_is_left_for_later(source: Source) -> Iterator[Finding]:
    """Comments and docstrings only: the words may stand in other strings, as in a self-test."""
    if not LEFTOVER.search(source.text):
        return
    message = "finish it, or open an issue; do not leave a note for later"
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT and LEFTOVER.search(token.string):
            yield source.finding(token.start[0], message)
    for node in (source.tree, *source.nodes(ast.ClassDef), *functions(source)):
        docstring = ast.get_docstring(node)
        if docstring and LEFTOVER.search(docstring):
            yield source.finding(node.body[0], message)


def no_machine_is_named(source: Source) -> Iterator[Finding]:
    """Works on any text file, not only on Python."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if MACHINE.search(line):
            yield source.finding(number, "this path or address is true on one machine only")
