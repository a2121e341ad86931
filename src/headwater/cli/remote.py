"""Which server a verb talks to: --url, HEADWATER_URL, a saved context, or this machine's own."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.contexts import Context, load_contexts
from headwater.client.blocking import DEFAULT_URL, Client
from headwater.client.retry import Retry
from headwater.core.errors import RequestError

GIVE_UP_AFTER_S = 10.0
"""Somebody waits in front of a terminal."""

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="HEADWATER_URL",
        metavar="URL",
        help="The server; else the saved context in use, else http://127.0.0.1:4000.",
        show_envvar=False,
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context",
        envvar="HEADWATER_CONTEXT",
        metavar="NAME",
        help="A saved server, see `headwater context`.",
        show_envvar=False,
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="HEADWATER_TOKEN",
        metavar="SECRET",
        help="An API key. Better in HEADWATER_TOKEN or a context: others see command lines.",
        show_envvar=False,
    ),
]


def find_server(url: str | None, context: str | None, token: str | None) -> Context:
    """A name given on the command line wins, then an address, then the context in use."""
    saved = load_contexts()
    found = Context(DEFAULT_URL)
    if url is not None:
        found = Context(url if "://" in url else f"http://{url}")
    elif context is not None or saved.current is not None:
        name = context or saved.current or ""
        if name not in saved.contexts:
            known = ", ".join(sorted(saved.contexts)) or "none"
            raise RequestError(f"there is no context {name!r}; saved are: {known}")
        found = saved.contexts[name]
    return found if token is None else Context(found.url, token, found.ca_file)


def connect(
    url: str | None,
    context: str | None,
    token: str | None,
    *,
    give_up_after_s: float = GIVE_UP_AFTER_S,
) -> Client:
    server = find_server(url, context, token)
    return Client(
        server.url,
        token=server.token,
        ca_file=server.ca_file,
        retry=Retry(give_up_after_s=give_up_after_s),
    )
