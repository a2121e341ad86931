"""Logs that are loaded when there is something to tell."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import logging, sys
from headwater.observe.logs import Logger, configure_logs
configure_logs(sys.stdout, as_json=True, level=logging.WARNING)
log = Logger("headwater.server")
assert "structlog" not in sys.modules
log.info("nobody asked")
log.warning("a webhook is gone", webhook="orders")
try:
    raise ValueError("seven")
except ValueError:
    log.exception("a webhook stopped")
"""


def test_the_first_line_is_written_as_it_was_chosen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    gone, stopped = (json.loads(line) for line in done.stdout.splitlines())
    assert gone.pop("timestamp")
    assert gone == {"event": "a webhook is gone", "level": "warning", "webhook": "orders"}
    assert stopped["level"] == "error"
    assert "ValueError: seven" in stopped["exception"]


def test_text_for_a_file_has_no_colours() -> None:
    """Whoever reads the log of a service in an editor sees words."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("as_json=True", "as_json=False")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "a webhook is gone" in done.stdout
    assert "webhook=orders" in done.stdout
    assert "\x1b" not in done.stdout
