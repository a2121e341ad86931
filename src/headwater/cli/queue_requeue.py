"""`headwater queue requeue`: dead letters back to the queues they came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from headwater.cli.log_directory import JsonOption
from headwater.cli.output import printable, say, say_json
from headwater.cli.remote import ContextOption, TokenOption, UrlOption, connect
from headwater.cli.topic import TopicArgument
from headwater.client import Client
from headwater.core.errors import RequestError
from headwater.core.limits import ACK_JOBS_MAX
from headwater.core.results import DEAD_LETTER_ORIGIN


def requeue(
    topic: TopicArgument,
    seqs: Annotated[
        list[int] | None, typer.Argument(metavar="[SEQ...]", help="The letters.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All letters of the topic.")] = False,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give dead letters back to the queues they came from.

    TOPIC is the dead letter topic. Each letter is written to its queue, then deleted here. What is
    not a letter stays; exit code 2 when one of the seqs named was none.
    """
    if bool(seqs) == everything:
        raise RequestError("name the letters by seq, or say --all")
    given: list[int] = []
    skipped: list[int] = []
    with connect(url, context, token) as client:
        for some in _letters(client, topic) if everything else _pieces(seqs or []):
            done = client.requeue(topic, some)
            given += done.seqs
            skipped += done.skipped
    if as_json:
        say_json({"requeued": given, "skipped": skipped})
    else:
        say(f"{printable(topic)}: {len(given):,} given back")
    if skipped:
        shown = ", ".join(map(str, skipped[:20]))
        raise RequestError(f"not given back: {shown}; not there, no letter, or not allowed")


def _pieces(seqs: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(seqs), ACK_JOBS_MAX):
        yield seqs[start : start + ACK_JOBS_MAX]


def _letters(client: Client, topic: str) -> Iterator[list[int]]:
    """All letters that are there now, a page at a time: what comes meanwhile is not meant."""
    head, cursor = client.state(topic).head_seq, 0
    while cursor < head:
        page = client.diff(topic, cursor, limit=ACK_JOBS_MAX)
        letters = [
            record.seq
            for record in page.records
            if record.seq <= head and DEAD_LETTER_ORIGIN in (record.meta or {})
        ]
        if letters:
            yield letters
        cursor = page.next_from_seq
        if page.caught_up:
            break
