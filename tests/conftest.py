"""Hooks that need the whole run: the crash matrix is gathered from all workers and printed, and
tests that share something dear stay in one worker.

They stand here because a conftest deeper down is not loaded by the process that prints.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from headwater.observe.logs import configure_logs
from tests.crash import matrix
from tests.rig.server_process import workers_wanted

# How long an example takes says something about the machine, nothing about the code.
settings.register_profile("headwater", deadline=None)
settings.load_profile("headwater")

# A server in this process, as `headwater serve`, logs to standard error: not to what a test puts
# in its place, between the lines of a command that runs here, whenever the machine is busy.
assert sys.__stderr__ is not None
configure_logs(sys.__stderr__, as_json=True)

_gathered: Counter[str] = Counter()
_KEY = "crash_matrix"


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("spark") is not None and item.get_closest_marker("timeout") is None:
        # The first one may have to make the class-data archive.
        item.add_marker(pytest.mark.timeout(300))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With workers, what looks into the process that has the connections has nothing to see."""
    if workers_wanted():
        inside = [item for item in items if item.get_closest_marker("one_process") is not None]
        config.hook.pytest_deselected(items=inside)
        items[:] = [item for item in items if item not in inside]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spark's session and the browser in one worker each, what a file shares in one; all others to
    whoever is free.

    pytest-xdist's own groups are lost with pytest 9.2: it writes them into the names of tests,
    and no longer can. So whoever hands out the tests looks at their files.
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Grouped(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _group_of(config.rootpath / nodeid.partition("::")[0]) or nodeid

    return Grouped(config, log)


@cache
def _group_of(path: Path) -> str | None:
    contents = path.read_text(encoding="utf-8")
    if "pytest.mark.spark" in contents:
        return "spark"
    if path.parent.name == "web":
        return "browser"
    beside = path.with_name("conftest.py")
    if beside.exists():
        contents += beside.read_text(encoding="utf-8")
    return str(path) if 'scope="module"' in contents else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands its counts to the controller; without workers they are here already."""
    workeroutput = getattr(session.config, "workeroutput", None)
    if workeroutput is None:
        _gathered.update(matrix.cases_tried)
    else:
        workeroutput[_KEY] = dict(matrix.cases_tried)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """One worker of pytest-xdist is done."""
    _gathered.update(getattr(node, "workeroutput", {}).get(_KEY, {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _gathered:
        form = "full" if matrix.FULL else "short"
        terminalreporter.section(f"crash matrix, {form} form")
        for line in matrix.table(_gathered):
            terminalreporter.write_line(line)
