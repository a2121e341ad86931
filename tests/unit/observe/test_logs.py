"""Lines of the log: one object each, or text."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from headwater.observe.logs import LineWriter, LogLine, _to_python

PROGRAM = """
import logging, sys
from headwater.observe.logs import Logger, configure_logs
configure_logs(sys.stdout, as_json=True, level=logging.WARNING)
log = Logger("headwater.server")
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
    facts = {"logger": "headwater.server", "webhook": "orders"}
    assert gone == {"event": "a webhook is gone", "level": "warning", **facts}
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


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("orders", "orders"),
        ("two words", "'two words'"),
        ("a\nb", "'a\\nb'"),
        ("a=b", "'a=b'"),
        ("\x1b[2J", "'\\x1b[2J'"),
        (7, "7"),
        (None, "None"),
    ],
)
def test_a_value_ends_where_it_ends_and_stays_on_its_line(value: object, shown: str) -> None:
    stream = io.StringIO()
    LineWriter(stream, as_json=False)(LogLine("headwater", "warning", "seen", {"it": value}, None))
    assert stream.getvalue().endswith(f" it={shown}\n")
    assert stream.getvalue().count("\n") == 1


def test_a_terminal_gets_colours() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    LineWriter(stream, as_json=False)(LogLine("headwater", "error", "seen", {}, None))
    assert "\x1b[31merror" in stream.getvalue()


def test_a_fact_that_json_does_not_know_is_printed_as_python_does() -> None:
    stream = io.StringIO()
    LineWriter(stream, as_json=True)(LogLine("headwater", "info", "seen", {"at": {1}}, None))
    assert json.loads(stream.getvalue())["at"] == "{1}"


def test_a_program_that_chose_nothing_gets_lines_where_its_others_go(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _to_python(LogLine("headwater.kafka", "warning", "a group broke", {"group": "g 1"}, None))
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("headwater.kafka", "WARNING")
    assert record.getMessage() == "a group broke group='g 1'"
