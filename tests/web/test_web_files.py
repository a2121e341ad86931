"""The machine that refuses untidy pages: rules over every file of the dashboard, no browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.server.dashboard import KINDS, web_files

WEB = Path(__file__).parents[2] / "src" / "headwater" / "web"
LINES_MAX = 400
COLUMNS_MAX = 110
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment"
    r"|setHTML|srcdoc|\beval\b|new Function|setTimeout\(\s*[\"'`]"
)
"""Ways from text to markup or to code."""
INLINE = re.compile(r"<[^>]+\s(on[a-z]+|style)\s*=|javascript:", re.IGNORECASE)
ELSEWHERE = re.compile(r"(?:https?:)?//[a-z0-9-]+\.[a-z]", re.IGNORECASE)
NAMESPACE = "http://www.w3.org/2000/svg"
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK|console\.log|debugger)\b")
IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*["'](\./[^"']+)["']""")
LISTENER = re.compile(r"setAttribute\(\s*[\"']on")
EMOJI = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]")

SOURCES = sorted(path for path in WEB.iterdir() if path.suffix in KINDS)


def offences(name: str, text: str) -> list[str]:
    found = []
    if len(text.splitlines()) > LINES_MAX:
        found.append(f"more than {LINES_MAX} lines")
    found += [f"line {at} is too long" for at in _long(text)]
    rules = (
        (MARKUP, "text becomes markup or code"),
        (INLINE, "a handler or a style in markup"),
        (LISTENER, "a handler as an attribute"),
        (LEFTOVER, "something left for later"),
        (EMOJI, "an emoji"),
    )
    found += [what for rule, what in rules if rule.search(text)]
    if ELSEWHERE.search(text.replace(NAMESPACE, "")):
        found.append("an address of somewhere else")
    if name.endswith(".js") and not text.startswith("// "):
        found.append("a module opens with what it is for")
    if name.endswith(".css") and not text.startswith("/* "):
        found.append("a style sheet opens with what it is for")
    return found


def _long(text: str) -> list[int]:
    return [at for at, line in enumerate(text.splitlines(), 1) if len(line) > COLUMNS_MAX]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_file_of_the_dashboard_keeps_the_rules(path: Path) -> None:
    assert offences(path.name, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "// x\nplace.innerHTML = record;",
        "// x\nplace.insertAdjacentHTML('beforeend', record);",
        "// x\nnew Function(record)();",
        "// x\nsetTimeout('go()', 1);",
        "// x\nbutton.setAttribute('onclick', record);",
        "// x\nconst mark = '<b style=\"x\">';",
        "// x\nfetch('https://example.org/x');",
        "// x\nimport '//cdn.example.org/x.js';",
        "// x\n// TODO later",
        "// x\nconsole.log(record);",
        "place.textContent = record;",
        "// x\n" + "y\n" * LINES_MAX,
        "// " + "y" * COLUMNS_MAX,
        "// x\nconst face = '\U0001f600';",
    ],
)
def test_an_offender_is_caught_by_the_rules(text: str) -> None:
    assert offences("page.js", text)


def test_a_decent_file_is_left_alone() -> None:
    text = f'// What it is for.\nelement.textContent = "a"; const space = "{NAMESPACE}";\n'
    assert offences("page.js", text) == []


def test_every_file_is_used_and_every_import_is_there() -> None:
    names = set(web_files())
    assert names == {path.name for path in SOURCES}
    used = set(re.findall(r'/ui/([a-z.-]+)"', (WEB / "index.html").read_text(encoding="utf-8")))
    for path in SOURCES:
        if path.suffix == ".js":
            text = path.read_text(encoding="utf-8")
            used |= {name.removeprefix("./") for name in IMPORT.findall(text)}
    assert used == names - {"index.html"}
