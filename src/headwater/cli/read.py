"""`headwater read`, `tail`, `watch` and `delete`: records of a server, shown or gone for good."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

from headwater.cli.output import complain, finish, printable, say, say_json
from headwater.cli.records import say_record, say_tombstone
from headwater.cli.remote import ANY_SERVER, ServerCall
from headwater.cli.topic import TopicArgument
from headwater.core import limits
from headwater.core.errors import RequestError
from headwater.core.records import Record
from headwater.core.results import Item, Tombstone, TopicGone

FOLLOW_GIVE_UP_AFTER_S = 600.0
MatchOption = Annotated[
    str | None,
    typer.Option("--match", metavar="TAG", help="Only this tag; TAG* means all that begin so."),
]


def read(
    topic: TopicArgument,
    from_seq: Annotated[
        int, typer.Option("--from", min=0, metavar="SEQ", help="Begin after this seq.")
    ] = 0,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Stop after so many records.")
    ] = 100,
    everything: Annotated[bool, typer.Option("--all", help="Read to the end.")] = False,
    match: MatchOption = None,
    call: ServerCall = ANY_SERVER,
) -> None:
    """Read records, oldest first. With --json one object a line.

    Where records were lost to a cap or an age limit, a line says so in their place.
    """
    left = sys.maxsize if everything else limit
    cursor = from_seq
    with call.connect() as client:
        while left > 0:
            wanted = min(left, limits.READ_RECORDS_CLAMP)
            diff = client.diff(topic, cursor, limit=wanted, match=match)
            cursor = diff.next_from_seq
            if diff.tombstone is not None:
                say_tombstone(diff.tombstone, as_json=call.as_json)
            for record in diff.records:
                say_record(record, as_json=call.as_json)
            left -= len(diff.records)
            if diff.caught_up:
                return
    finish()
    if sys.stderr.isatty():
        complain(f"there is more; go on with --from {cursor}, or read it --all")


def tail(
    topic: TopicArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, metavar="N", help="So many of the newest.")
    ] = 10,
    match: MatchOption = None,
    call: ServerCall = ANY_SERVER,
) -> None:
    """Show the newest records, and with -f everything that comes, until Ctrl-C.

    Following goes on over restarts of the server, without a gap or a repeat.
    """
    patience = FOLLOW_GIVE_UP_AFTER_S if follow else 10.0
    with call.connect(give_up_after_s=patience) as client:
        state = client.state(topic)
        begin = max(state.head_seq - lines, state.earliest_seq - 1, 0)
        watch = client.watch(topic, begin, idle_ms=None if follow else 0, match=match)
        for watched in watch:
            _say(watched, as_json=call.as_json)


def watch(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC...", help="Topics; NAME* means all that begin so."),
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="Begin with the oldest record, not with the next.")
    ] = False,
    match: MatchOption = None,
    call: ServerCall = ANY_SERVER,
) -> None:
    """Follow several topics at once, until Ctrl-C. Quote the star: 'orders.*'."""
    with call.connect(give_up_after_s=FOLLOW_GIVE_UP_AFTER_S) as client:
        for watched in client.watch_topics(topics, tail=not everything, match=match):
            _say(watched.item, as_json=call.as_json, topic=watched.topic)
    complain("nothing is left to watch: the topics were dropped")


def _say(item: Item, *, as_json: bool, topic: str | None = None) -> None:
    """At once: who follows does not want to wait for a full buffer."""
    if isinstance(item, Record):
        say_record(item, as_json=as_json, topic=topic)
    elif isinstance(item, Tombstone):
        say_tombstone(item, as_json=as_json, topic=topic)
    else:
        assert isinstance(item, TopicGone)
        if as_json:
            say_json({"topic": topic, "deleted": True})
        else:
            say(f"-- {printable(topic or '')} was dropped")
    finish()


def delete(
    topic: TopicArgument,
    before: Annotated[
        int | None, typer.Option("--before", min=0, metavar="SEQ", help="Those below this seq.")
    ] = None,
    match: MatchOption = None,
    call: ServerCall = ANY_SERVER,
) -> None:
    """Delete records below a seq, by tag, or those that are both. They never come back.

    To drop a whole topic: `headwater topic delete`.
    """
    if before is None and match is None:
        raise RequestError("say which records: --before SEQ, --match TAG, or both")
    with call.connect() as client:
        deleted = client.delete(topic, before_seq=before, match=match)
    records = "1 record" if deleted.deleted == 1 else f"{deleted.deleted:,} records"
    left = f"{deleted.count:,} left, {deleted.bytes:,} bytes"
    answer = {"topic": topic, **msgspec.structs.asdict(deleted)}
    call.say(answer, f"deleted {records} of {printable(topic)}; {left}")
