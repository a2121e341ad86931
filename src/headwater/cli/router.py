"""`headwater router`: define, list, show and remove routers of a server."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from headwater.cli.output import printable, say, say_table
from headwater.cli.remote import ANY_SERVER, ServerCall
from headwater.core.results import RouterState

RouterArgument = Annotated[str, typer.Argument(metavar="ROUTER", help="The router's name.")]


def put(
    router: RouterArgument,
    source: Annotated[str, typer.Option("--source", metavar="TOPIC", help="Copy from here.")],
    dest: Annotated[str, typer.Option("--dest", metavar="TOPIC", help="Copy to here.")],
    match: Annotated[
        str | None,
        typer.Option("--filter", metavar="TAG", help="Only this tag; x* means all beginning so."),
    ] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="No copy twice, not even after a crash.")
    ] = False,
    drop_node: Annotated[bool, typer.Option("--drop-node", help="Copy without the node.")] = False,
    drop_tag: Annotated[bool, typer.Option("--drop-tag", help="Copy without the tag.")] = False,
    allow_cycle: Annotated[
        bool, typer.Option("--allow-cycle", help="Copies may come back; at most 8 times.")
    ] = False,
    create_dest: Annotated[
        bool, typer.Option("--create-dest/--no-create-dest", help="Make the destination.")
    ] = True,
    call: ServerCall = ANY_SERVER,
) -> None:
    """Copy what comes into one topic to another, from now on."""
    settings: dict[str, Any] = {
        "source": source,
        "dest": dest,
        "preserve_node": not drop_node,
        "preserve_tag": not drop_tag,
        "create_dest": create_dest,
        "allow_cycle": allow_cycle,
        "guarantee": "exactly_once" if exactly_once else "at_least_once",
    }
    if match is not None:
        settings["filter"] = match
    with call.connect() as client:
        state = client.put_router(router, **settings)
    call.say(state, f"{printable(router)}: copies {_way(state)}")


def listed(
    prefix: Annotated[str, typer.Option(help="Names that begin with it.")] = "",
    source: Annotated[str | None, typer.Option(metavar="TOPIC", help="That copy from it.")] = None,
    dest: Annotated[str | None, typer.Option(metavar="TOPIC", help="That copy to it.")] = None,
    call: ServerCall = ANY_SERVER,
) -> None:
    """List routers. With --json one object a line."""
    with call.connect() as client:
        states = client.routers(prefix, source=source, dest=dest)
    if call.say_json(*states):
        return
    if not states:
        say("no routers")
        return
    rows = [
        [
            state.router,
            state.source,
            state.dest,
            state.filter or "everything",
            state.guarantee,
            f"{state.forwarded_total:,}",
            f"{state.lag:,}{' (held)' if state.held else ''}",
        ]
        for state in states
    ]
    headings = ["router", "source", "dest", "filter", "guarantee", "copied", "behind"]
    say_table(headings, rows, "copied behind")


def show(router: RouterArgument, call: ServerCall = ANY_SERVER) -> None:
    """Show one router: what it does and how far it has come."""
    with call.connect() as client:
        state = client.router(router)
    fields = msgspec.structs.asdict(state)
    if not call.say_json(fields):
        rows = [[name.replace("_", " "), _text(value)] for name, value in fields.items()]
        say_table(["what", "value"], rows)


def remove(router: RouterArgument, call: ServerCall = ANY_SERVER) -> None:
    """Remove a router. What it has copied stays."""
    with call.connect() as client:
        deleted = client.delete_router(router)
    said = "removed" if deleted else "there was none, nothing was done"
    call.say({"router": router, "deleted": deleted}, f"{printable(router)}: {said}")


def _way(state: RouterState) -> str:
    what = "everything" if state.filter is None else f"what is tagged {printable(state.filter)}"
    how = state.guarantee.replace("_", " ")
    return f"{what} from {printable(state.source)} to {printable(state.dest)}, {how}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
