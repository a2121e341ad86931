"""docs/kafka.md says what is, and what it shows works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.config.server import ServerSettings
from headwater.engine.kafka.configs import TOPIC_CONFIGS
from headwater.server.kafka.fetch import ANSWER_BYTES_MAX
from headwater.wire.kafka.apis import SUPPORTED
from tests.kafka.broker import Broker

PAGE = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text(encoding="utf-8")
SHOWN = "127.0.0.1:9092"


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_table_of_apis_is_the_one_in_the_code() -> None:
    rows = [
        f"| {''.join(word.capitalize() for word in api.name.split('_'))} | {oldest}-{newest} |"
        for api, (oldest, newest) in SUPPORTED.items()
    ]
    table = "\n".join(("<!-- apis -->", "| API | versions |", "|---|---|", *rows, "<!-- end -->"))
    assert table in PAGE, f"put this into docs/kafka.md:\n{table}"


def test_every_config_of_a_topic_is_on_the_page() -> None:
    section = PAGE.partition("## Configs of topics")[2].partition("\n## ")[0]
    assert set(TOPIC_CONFIGS) == set(re.findall(r"`([a-z]+(?:\.[a-z]+)+|preallocate)`", section))


def test_limits_on_the_page_are_those_in_the_code() -> None:
    assert f"| {ANSWER_BYTES_MAX >> 20} MiB, but always one batch |" in PAGE
    assert f"| {ServerSettings().limits.pipeline}; the rest" in PAGE


def test_the_python_on_the_page_reads_what_it_wrote(broker: Broker) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("python").replace(SHOWN, broker.bootstrap)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == """b'42' b'{"total": 9.5}'\n""", done.stderr


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_the_commands_on_the_page_say_hello(broker: Broker) -> None:
    lines = block("sh").replace(SHOWN, broker.bootstrap).splitlines()
    assert lines[0].startswith("headwater serve")
    done = subprocess.run(
        ["sh", "-ec", "\n".join(lines[1:])],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "hello\n", done.stderr
