"""Where a function stands in the source, by the name that Python gives it while it runs."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parents[2] / "src" / "headwater"
SENTENCE_MAX: Final = 140


def is_defined(file: str, name: str) -> bool:
    return name in _docstrings(file)


def first_sentence(file: str, name: str) -> str:
    """Of its docstring; empty where it has none, or a long one."""
    docstring = " ".join(_docstrings(file).get(name, "").split())
    sentence = re.split(r"(?<=\.)\s", docstring, maxsplit=1)[0].rstrip(".:;")
    return sentence.replace("*", r"\*") if len(sentence) <= SENTENCE_MAX else ""


@cache
def _docstrings(file: str) -> dict[str, str]:
    """Every function of the file and its docstring; empty for a file that is not there."""
    path = PACKAGE / file
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".pyx":
        defined = re.finditer(
            r'^c?p?def [^\n(]*?(\w+)\(.*?\).*?:\n(?:    """(.*?)""")?', text, re.M | re.S
        )
        return {match[1]: match[2] or "" for match in defined}
    found: dict[str, str] = {}
    _collect(ast.parse(text), "", found)
    return found


def _collect(scope: ast.AST, prefix: str, found: dict[str, str]) -> None:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if not isinstance(node, ast.ClassDef):
                found[f"{prefix}{node.name}"] = ast.get_docstring(node) or ""
            _collect(node, f"{prefix}{node.name}.", found)
        else:
            _collect(node, prefix, found)
