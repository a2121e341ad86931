"""Options declared in groups stand on the command line one by one."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from headwater.cli.option_groups import spread_groups


@dataclass(frozen=True)
class Inner:
    url: Annotated[str | None, typer.Option("--url", help="Where.")] = None
    count: Annotated[int, typer.Option("--count", min=1)] = 3


@dataclass(frozen=True)
class Outer:
    directory: Annotated[str | None, typer.Option("--dir")] = None
    inner: Inner = Inner()


def _verb(called: list[tuple[str, Outer, bool]]) -> typer.Typer:
    def verb(name: str, outer: Outer = Outer(), as_json: bool = False) -> None:  # noqa: B008
        """What it does."""
        called.append((name, outer, as_json))

    app = typer.Typer()
    app.command()(spread_groups(verb))
    return app


@pytest.mark.parametrize(
    ("words", "outer"),
    [
        ([], Outer()),
        (["--dir", "d"], Outer("d")),
        (["--url", "u", "--count", "7"], Outer(None, Inner("u", 7))),
    ],
)
def test_a_verb_gets_its_groups_filled(words: list[str], outer: Outer) -> None:
    called: list[tuple[str, Outer, bool]] = []
    result = CliRunner().invoke(_verb(called), ["it", *words, "--as-json"])
    assert result.exit_code == 0, result.output
    assert called == [("it", outer, True)]


def test_options_stand_where_their_group_stands() -> None:
    def verb(first: str, outer: Outer, last: bool = False) -> None:
        """What it does."""

    spread = spread_groups(verb)
    assert list(inspect.signature(spread).parameters) == [
        "first",
        "directory",
        "url",
        "count",
        "last",
    ]
    assert spread.__doc__ == "What it does."


def test_what_an_option_demands_is_checked_in_a_group_too() -> None:
    called: list[tuple[str, Outer, bool]] = []
    assert CliRunner().invoke(_verb(called), ["it", "--count", "0"]).exit_code == 2
    assert called == []
