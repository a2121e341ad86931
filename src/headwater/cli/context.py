"""`headwater context`: remember servers by name."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headwater.cli.option_groups import JsonOption
from headwater.cli.output import printable, say, say_json, say_table, shown_path
from headwater.cli.remote import Context, contexts_path, load_contexts, save_contexts
from headwater.client.http import Address
from headwater.core.errors import RequestError

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What you call the server.")]


def add(
    name: NameArgument,
    url: Annotated[str, typer.Argument(metavar="URL", help="Its address.")],
    token: Annotated[
        str | None, typer.Option(metavar="SECRET", help="Its API key; - reads it from stdin.")
    ] = None,
    ca_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Certificates to trust for https.")
    ] = None,
) -> None:
    """Save a server, or change a saved one. The first one saved is in use."""
    if not name.strip() or not name.isprintable():
        raise RequestError("a context needs a name that can be printed")
    if token == "-":
        token = sys.stdin.readline().strip()
    address = url if "://" in url else f"http://{url}"
    Address(address, token, 1.0)  # says what is wrong with it
    saved = load_contexts()
    saved.contexts[name] = Context(address, token, ca_file)
    saved.current = saved.current or name
    save_contexts(saved)
    used = "in use" if saved.current == name else f"use it with `headwater context use {name}`"
    say(f"saved {name}: {printable(address)} ({used})")


def use(name: NameArgument) -> None:
    """Talk to this server when nothing else is said."""
    saved = load_contexts()
    if name not in saved.contexts:
        known = ", ".join(sorted(saved.contexts)) or "none"
        raise RequestError(f"there is no context {name!r}; saved are: {known}")
    saved.current = name
    save_contexts(saved)
    say(f"using {name}: {printable(saved.contexts[name].url)}")


def show(as_json: JsonOption = False) -> None:
    """List the saved servers. Tokens are not shown."""
    saved = load_contexts()
    if as_json:
        say_json(
            {
                "current": saved.current,
                "contexts": [
                    {"name": name, "url": context.url, "has_token": context.token is not None}
                    for name, context in sorted(saved.contexts.items())
                ],
            }
        )
        return
    if not saved.contexts:
        say("no contexts are saved; `headwater context add NAME URL` saves one")
        return
    rows = [
        [
            "*" if name == saved.current else "",
            name,
            context.url,
            "yes" if context.token else "no",
        ]
        for name, context in sorted(saved.contexts.items())
    ]
    say_table(["used", "name", "url", "token"], rows)


def remove(name: NameArgument) -> None:
    """Forget a saved server."""
    saved = load_contexts()
    if saved.contexts.pop(name, None) is None:
        raise RequestError(f"there is no context {name!r} in {shown_path(contexts_path())}")
    if saved.current == name:
        saved.current = None
    save_contexts(saved)
    say(f"removed {name}")
