"""Which server a verb talks to: --url, HEADWATER_URL, a saved context, or this machine's own."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from headwater.cli.contexts import Context, load_contexts
from headwater.client.blocking import DEFAULT_URL, Client
from headwater.client.retry import Retry
from headwater.core.errors import RequestError

GIVE_UP_AFTER_S = 10.0
"""Short: a user waits in front of a terminal."""

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The server, also as HEADWATER_URL; else the saved context in use, else "
        "http://127.0.0.1:4000.",
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="A saved server, see `headwater context`.",
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="SECRET",
        help="An API key. Better in HEADWATER_TOKEN or a context: others see command lines.",
    ),
]


def find_server(url: str | None, context: str | None, token: str | None) -> Context:
    """What the command line says, then the environment, then the context in use.

    A context brings its own token: one meant for another server is not sent there.
    """
    if url is not None and context is not None:
        raise RequestError("give --url or --context, not both")
    if url is None and context is None:
        url = os.environ.get("HEADWATER_URL") or None
    saved = load_contexts()
    if url is None:
        context = context or os.environ.get("HEADWATER_CONTEXT") or saved.current
    server = Context(DEFAULT_URL if url is None else _with_scheme(url))
    if context is not None:
        if context not in saved.contexts:
            known = ", ".join(sorted(saved.contexts)) or "none"
            raise RequestError(f"there is no context {context!r}; saved are: {known}")
        server = saved.contexts[context]
    token = token or server.token or os.environ.get("HEADWATER_TOKEN") or None
    return Context(server.url, token, server.ca_file)


def _with_scheme(url: str) -> str:
    return url if "://" in url else f"http://{url}"


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
