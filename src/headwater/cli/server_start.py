"""From the flags of `headwater serve` to the server, for both ways of reading a command line."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from headwater.cli.files import read_text_file
from headwater.cli.output import complain
from headwater.config.loading import SettingsError, load_settings
from headwater.core.errors import RequestError


def start_server(flags: Mapping[str, Any], config: str | None) -> int:
    """Serve until a signal stops it; gives the exit code."""
    try:
        settings = load_settings(flags, os.environ, config, read_text_file)
    except SettingsError as error:
        for mistake in error.mistakes:
            complain(mistake)
        return RequestError.exit_code
    # Late: a mistake among the settings should not wait for a server to be imported. What is
    # imported stays, so a garbage collection meanwhile finds none and takes a tenth of the time;
    # `run_server` goes on.
    gc.disable()
    from headwater.cli.server_run import run_server
    from headwater.observe.logs import configure_logs

    configure_logs(
        sys.stderr,
        as_json=settings.log_json,
        level=logging.getLevelNamesMapping()[settings.log_level.upper()],
    )
    if settings.server.workers:
        from headwater.cli.server_workers import run_with_workers

        return run_with_workers(settings)
    run_server(settings)
    return 0
