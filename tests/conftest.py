"""Hooks that need the whole run: the crash matrix is gathered from all workers and printed, and
tests that share something dear stay in one worker.

They stand here because a conftest deeper down is not loaded by the process that prints.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.crash import matrix

_gathered: Counter[str] = Counter()
_KEY = "crash_matrix"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Groups for `--dist loadgroup`: one for Spark's session, one a file for what a file shares.

    All other tests go one by one to whoever is free. Said as soon as a test is found: when all
    are, pytest-xdist has already noted the groups, before any conftest is asked.
    """
    if item.get_closest_marker("spark") is not None:
        item.add_marker(pytest.mark.xdist_group("spark"))
        if item.get_closest_marker("timeout") is None:
            # The first one may have to make the class-data archive.
            item.add_marker(pytest.mark.timeout(300))
    elif _shares_with_its_file(item):
        item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _shares_with_its_file(item: pytest.Item) -> bool:
    fixtures = getattr(item, "_fixtureinfo", None)
    definitions = {} if fixtures is None else fixtures.name2fixturedefs
    return any(each[-1].scope == "module" for each in definitions.values() if each)


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
