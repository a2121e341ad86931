"""`headwater serve`: run the server in the foreground until a signal stops it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headwater.cli.server_start import start_server


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (127.0.0.1).")] = None,
    port: Annotated[
        str | None, typer.Option(metavar="PORT", help="Port (4000); 0 picks a free one.")
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Data directory (./headwater-data).")
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(metavar="N", help="Gateway processes for connections (0: all in one)."),
    ] = None,
    wal_shards: Annotated[
        str | None, typer.Option(metavar="N", help="Independent logs (1).")
    ] = None,
    cold_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where sealed segments go when they cool.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="TOML file with settings.")
    ] = None,
    port_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the bound ports there, once ready.")
    ] = None,
    metrics_port: Annotated[
        str | None, typer.Option(metavar="PORT", help="Metrics on a port of their own, too.")
    ] = None,
    rcpx_port: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="State machines over RCPX (7401); 0, or off."),
    ] = None,
    kafka_port: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="Kafka clients (9092); 0 picks a free one, or off."),
    ] = None,
    log_json: Annotated[
        bool | None, typer.Option("--log-json/--log-text", help="Logs as JSON, one object a line.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error (info).")
    ] = None,
) -> None:
    """Run the server until SIGTERM or Ctrl-C; what is under way is finished first.

    Settings come from the defaults, a TOML file, HEADWATER_* in the environment and the flags
    here; later wins. API keys are given by HEADWATER_API_KEYS (or @FILE) or in the file, never
    as a flag. docs/cli.md lists all of them.
    """
    flags: dict[str, Any] = {
        "host": host,
        "port": port,
        "data_dir": data_dir,
        "workers": workers,
        "wal_shards": wal_shards,
        "cold_dir": cold_dir,
        "port_file": port_file,
        "metrics_port": metrics_port,
        "rcpx_port": rcpx_port,
        "kafka_port": kafka_port,
        "log_json": log_json,
        "log_level": log_level,
    }
    raise typer.Exit(start_server(flags, config))
