"""`headwater topic`: create, list, show and drop topics of a server."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from headwater.cli.output import printable, say, say_table, when
from headwater.cli.remote import ANY_SERVER, ServerCall
from headwater.config.topic import DEFAULT_TOPIC_SETTINGS
from headwater.core.errors import RequestError
from headwater.core.results import TopicState

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def create(
    topic: TopicArgument,
    kind: Annotated[str | None, typer.Option("--type", help="log or queue (log).")] = None,
    durability: Annotated[
        str | None, typer.Option(help="fsync, disk, memory or ephemeral (fsync).")
    ] = None,
    ttl_ms: Annotated[int | None, typer.Option(metavar="MS", help="Age limit.")] = None,
    cap_records: Annotated[int | None, typer.Option(metavar="N", help="Most records.")] = None,
    cap_bytes: Annotated[int | None, typer.Option(metavar="N", help="Most bytes.")] = None,
    discard: Annotated[
        str | None, typer.Option(help="When full: old goes, or reject the write (old).")
    ] = None,
    more: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other setting.")
    ] = None,
    call: ServerCall = ANY_SERVER,
) -> None:
    """Make a topic, or change the settings of one that is there."""
    given: dict[str, Any] = {
        "type": kind,
        "durability": durability,
        "ttl_ms": ttl_ms,
        "cap_records": cap_records,
        "cap_bytes": cap_bytes,
        "discard": discard,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    settings |= dict(map(_setting, more or ()))
    with call.connect() as client:
        state = client.create(topic, **settings)
    changed = _changed(state.config)
    details = f" with {', '.join(changed)}" if changed else " with the defaults"
    call.say(state, f"{printable(topic)}: a {state.type}{details}")


def listed(
    prefix: Annotated[str, typer.Option(help="Names that begin with it.")] = "",
    call: ServerCall = ANY_SERVER,
) -> None:
    """List topics. With --json one object a line."""
    with call.connect() as client:
        states = client.topics(prefix)
    if call.say_json(*states):
        return
    if not states:
        say("no topics" + (f" that begin with {printable(prefix)}" if prefix else ""))
        return
    rows = [
        [
            state.topic,
            state.type,
            str(state.config.get("durability", "")),
            f"{state.count:,}",
            f"{state.bytes:,}",
            str(state.head_seq),
            when(state.last_write_ts or 0),
        ]
        for state in states
    ]
    headings = ["topic", "type", "durability", "records", "bytes", "head", "last write"]
    say_table(headings, rows, "records bytes head")


def show(topic: TopicArgument, call: ServerCall = ANY_SERVER) -> None:
    """Show one topic: its numbers and its settings."""
    with call.connect() as client:
        state = client.state(topic)
    if not call.say_json(state):
        say_table(["what", "value"], _facts(state))


def drop(
    topic: TopicArgument,
    if_empty: Annotated[
        bool, typer.Option("--if-empty", help="Only when it holds no records.")
    ] = False,
    yes: YesOption = False,
    call: ServerCall = ANY_SERVER,
) -> None:
    """Drop a topic and everything in it, for good. Asks first on a terminal."""
    with call.connect() as client:
        if not (yes or if_empty) and sys.stdin.isatty():
            count = client.state(topic).count
            typer.confirm(f"Drop {printable(topic)} with {count:,} records?", abort=True, err=True)
        dropped = client.drop(topic, if_empty=if_empty)
    said = "dropped" if dropped else "there was none, nothing was done"
    call.say({"topic": topic, "deleted": dropped}, f"{printable(topic)}: {said}")


def _setting(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise RequestError(f"--set takes NAME=VALUE, not {text!r}")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value


def _changed(config: dict[str, Any]) -> list[str]:
    defaults = DEFAULT_TOPIC_SETTINGS.to_wire()
    return [
        f"{printable(name)} {printable(json.dumps(value))}"
        for name, value in config.items()
        if value != defaults.get(name) and name != "durable"
    ]


def _facts(state: TopicState) -> list[tuple[str, str]]:
    return [
        ("topic", state.topic),
        ("records", f"{state.count:,}"),
        ("bytes", f"{state.bytes:,}"),
        ("earliest seq", str(state.earliest_seq)),
        ("head seq", str(state.head_seq)),
        ("last write", when(state.last_write_ts or 0)),
        ("last read", when(state.last_read_ts or 0)),
        *((name, json.dumps(value)) for name, value in state.config.items()),
    ]
