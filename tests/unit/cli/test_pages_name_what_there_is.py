"""Commands, flags and variables that our pages name are there, on every page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from headwater.cli.app import app
from headwater.config.keys import KEYS
from headwater.config.loading import OTHER_VARIABLES, load_settings

REPOSITORY = Path(__file__).parents[3]
PAGES = sorted(
    path
    for place in ("*.md", "docs/**/*.md", "examples/**/*.md", "packaging/*")
    for path in REPOSITORY.glob(place)
    if path.is_file()
)
VARIABLES = {f"HEADWATER_{key.name.upper()}" for key in KEYS}
VARIABLES |= {f"HEADWATER_{name}" for name in OTHER_VARIABLES}
PLACEHOLDER = re.compile(r"[A-Z]+|\.+")
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_OTHER_LANGUAGES = {"python", "json", "text", "toml", "sql", "yaml"}


def commands(text: str) -> Iterator[str]:
    """What stands in blocks of a shell, and in the middle of a sentence."""
    for language, block in _BLOCK.findall(text):
        if language not in _OTHER_LANGUAGES:
            joined = re.sub(r"(^|\s)#.*", r"\1", block).replace("\\\n", " ")
            yield from re.findall(r"(?:^|[\s$&|;(]|bin/)(headwater [^\n|;&>)]*)", joined)
    prose = _BLOCK.sub("", text)
    yield from (found.replace("\n", " ") for found in re.findall(r"`(headwater [^`]*)`", prose))


def unknown_words(command: str) -> list[str]:
    words = shlex.split(command, comments=True)[1:]
    verb: Any = typer.main.get_command(app)
    while words and hasattr(verb, "get_command") and not words[0].startswith("-"):
        if PLACEHOLDER.fullmatch(words[0]):
            return []
        found = verb.get_command(typer.Context(verb, resilient_parsing=True), words[0])
        if found is None:
            return [words[0]]
        verb, words = found, words[1:]
    flags = {flag for given in verb.params for flag in (*given.opts, *given.secondary_opts)}
    if "--" in words:
        words = words[: words.index("--")]
    named = {word.partition("=")[0] for word in words if word.startswith("--")}
    return sorted(named - flags - {"--help"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_verbs_and_flags_on_our_pages_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    wrong = {command: unknown_words(command) for command in commands(text)}
    assert {command: words for command, words in wrong.items() if words} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_variables_on_our_pages_exist(page: Path) -> None:
    named = set(re.findall(r"HEADWATER_[A-Z][A-Z_]*[A-Z]", page.read_text(encoding="utf-8")))
    assert named <= VARIABLES


def test_variables_that_our_programs_read_or_set_stop_no_server() -> None:
    """`headwater serve` refuses names it does not know; it must know all of ours."""
    package = REPOSITORY / "src" / "headwater"
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] != "testing"  # those set what a server does read
    )
    named = set(re.findall(r'"(HEADWATER_[A-Z_]*[A-Z])"', sources))
    assert named >= {"HEADWATER_SPARK_ARCHIVE", "HEADWATER_JOB_SEQ", "HEADWATER_TOKEN"}
    assert named <= VARIABLES
    load_settings({}, dict.fromkeys(named - {"HEADWATER_CONFIG"}, "off"), None, lambda _: "")


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert unknown_words("headwater serve --tls-sertificate x") == ["--tls-sertificate"]
    assert unknown_words("headwater topic destroy orders") == ["destroy"]
    assert unknown_words("headwater queue work mails --jobs 4 -- ./send --fast") == []
    assert [
        *commands("`headwater read\n--all`\n```sh\na | headwater write x \\\n  --text\n```\n")
    ] == [
        "headwater write x    --text",
        "headwater read --all",
    ]
