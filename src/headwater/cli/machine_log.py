"""`headwater wal read`, `wal stats` and `compact`: the log of the machines."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from headwater.cli.log_directory import JsonOption
from headwater.cli.machine_access import DirectoryOption, compact_json, open_machines
from headwater.cli.output import printable, say, say_json, say_table
from headwater.cli.remote import ContextOption, TokenOption, UrlOption
from headwater.wire.machine_requests import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX


def read(
    from_offset: Annotated[
        int | None,
        typer.Option(
            "--from-offset", min=0, metavar="X", help="Begin here. Without it: the last ones."
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", "-l", min=1, max=LIST_LIMIT_MAX, metavar="N", help="So many."),
    ] = LIST_LIMIT_DEFAULT,
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read entries of the machines' log, the last ones there are. With --json one object a line."""
    with open_machines(url, context, token, directory) as machines:
        page = machines.read_wal(from_offset or 0, limit=limit, newest=from_offset is None)
    for each in page.entries:
        if as_json:
            say_json(msgspec.to_builtins(each))
        else:
            say(printable(f"{each.offset}  {each.type}  {compact_json(each.data)}"))
    if as_json:
        return
    for bad in page.damaged:
        say(f"(damaged: {bad.offset} up to {bad.resume})")
    if page.has_more:
        say(f"more with --from-offset {page.next_offset}")


def stats(
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how large the machines' log is, and what it has done."""
    with open_machines(url, context, token, directory) as machines:
        answer = machines.wal_stats()
    if as_json:
        say_json(msgspec.to_builtins(answer))
        return
    values = msgspec.to_builtins(answer)
    values.pop("performance", None)
    values |= values.pop("io_stats")
    rows = [
        # An offset is for pasting into --from-offset, so nothing stands between its digits.
        [name.replace("_", " "), str(value) if "offset" in name else _amount(value)]
        for name, value in values.items()
        if not name.endswith("_text")
    ]
    say_table(["what", "value"], rows, "value")


def _amount(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def compact(
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a snapshot of all machines and instances, and drop the log before it."""
    with open_machines(url, context, token, directory) as machines:
        done = machines.compact()
    if as_json:
        say_json(msgspec.to_builtins(done))
        return
    say(
        f"{done.snapshot_id}: {done.instance_count:,} instances in {done.snapshot_bytes:,} bytes; "
        f"{done.segments_deleted} log files deleted"
    )
