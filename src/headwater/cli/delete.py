"""`headwater delete`: delete records of a topic for good."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from headwater.cli.output import printable
from headwater.cli.read import MatchOption
from headwater.cli.remote import ANY_SERVER, ServerCall
from headwater.cli.topic import TopicArgument
from headwater.core.errors import RequestError


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
