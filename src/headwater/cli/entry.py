"""The first thing that runs: which of two ways a command takes.

`headwater serve` with flags of the plain kind goes straight to the server. Reading a command line
with typer, which loads rich and pydantic, would take a third of the time in which a server starts.
Everything else, also every mistake and every cry for help, is typer's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

SERVE_FLAGS: Final = (
    "host",
    "port",
    "data_dir",
    "workers",
    "wal_shards",
    "cold_dir",
    "config",
    "port_file",
    "metrics_port",
    "rcpx_port",
    "kafka_port",
    "log_level",
)
"""Flags of `serve` that are followed by a value, as functions name them."""
_NAME_OF: Final = {"--" + name.replace("_", "-"): name for name in SERVE_FLAGS}
SERVE_SWITCHES: Final = {"--log-json": ("log_json", True), "--log-text": ("log_json", False)}
_COMPLETING: Final = "_HEADWATER_COMPLETE"


def main() -> None:
    flags = plain_serve_flags(sys.argv[1:], os.environ)
    if flags is None:
        from headwater.cli.app import run_app

        run_app()
    else:
        from headwater.cli.exit_codes import run_and_exit
        from headwater.cli.server_start import start_server

        config = flags.pop("config", None)
        run_and_exit(lambda: start_server(flags, config))


def plain_serve_flags(
    words: Sequence[str], environment: Mapping[str, str]
) -> dict[str, Any] | None:
    """The flags of `serve`, or None when there is an argument that typer should parse."""
    if not words or words[0] != "serve" or _COMPLETING in environment:
        return None
    flags: dict[str, Any] = {}
    rest = iter(words[1:])
    for word in rest:
        if word in SERVE_SWITCHES:
            name, value = SERVE_SWITCHES[word]
            flags[name] = value
            continue
        given = next(rest, "-")
        if word not in _NAME_OF or given.startswith("-") or not given.isprintable():
            return None
        flags[_NAME_OF[word]] = given
    return flags
