"""`headwater serve` reaches the server without typer, and means the same as with it."""

from __future__ import annotations

import pytest
from typer.main import get_command

from headwater.cli.app import app
from headwater.cli.entry import SERVE_FLAGS, SERVE_SWITCHES, plain_serve_flags


def typer_flags(words: list[str]) -> dict[str, object]:
    """What typer would call the verb with."""
    group = get_command(app)
    with group.make_context("headwater", words, resilient_parsing=True) as context:
        verb = group.get_command(context, "serve")  # type: ignore[attr-defined]
    with verb.make_context("serve", words[1:]) as context:
        return {name: value for name, value in context.params.items() if value is not None}


def test_both_ways_know_the_same_flags() -> None:
    with get_command(app).make_context("headwater", ["serve"], resilient_parsing=True) as context:
        verb = context.command.get_command(context, "serve")  # type: ignore[attr-defined]
    valued = {one.name: one.opts for one in verb.params if not one.is_flag}
    assert valued == {name: ["--" + name.replace("_", "-")] for name in SERVE_FLAGS}
    switches = {one.name: (one.opts, one.secondary_opts) for one in verb.params if one.is_flag}
    assert switches == {"log_json": (["--log-json"], ["--log-text"])}
    assert {"--log-json", "--log-text"} == set(SERVE_SWITCHES)


@pytest.mark.parametrize(
    "words",
    [
        ["serve"],
        ["serve", "--port", "0", "--data-dir", "here and there", "--host", "::1"],
        ["serve", "--log-text", "--port", "1", "--log-json", "--port", "2"],
        ["serve", "--config", "", "--kafka-port", "off", "--wal-shards", "two"],
        ["serve", *(word for name in SERVE_FLAGS for word in ("--" + name.replace("_", "-"), "1"))],
    ],
)
def test_plain_flags_are_read_as_typer_reads_them(words: list[str]) -> None:
    assert plain_serve_flags(words, {}) == typer_flags(words)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["topic", "list"],
        ["--version"],
        ["serve", "--help"],
        ["serve", "--port=0"],
        ["serve", "--port"],
        ["serve", "--port", "--host"],
        ["serve", "--port", "-1"],
        ["serve", "--prot", "1"],
        ["serve", "here"],
        ["serve", "--port", "1", "here"],
        ["serve", "--data-dir", "line\nbreak"],
        ["serve", "--data-dir", "not-utf8-\udcff"],
    ],
)
def test_everything_else_is_left_to_typer(words: list[str]) -> None:
    assert plain_serve_flags(words, {}) is None


def test_completion_of_the_shell_is_left_to_typer() -> None:
    assert plain_serve_flags(["serve"], {"_HEADWATER_COMPLETE": "complete_bash"}) is None
