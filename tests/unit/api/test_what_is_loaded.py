"""What an import loads, seen in a new interpreter, and what stands at the door of the package."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import headwater
from headwater.client import errors as client_errors
from headwater.core import errors as core_errors
from headwater.core import results as core_results
from headwater.model.machines import errors as machine_errors
from headwater.wire import machine_answers

PROGRAM = """
import json, sys
import headwater.client
print(json.dumps(sorted(name for name in sys.modules if name.startswith("headwater."))))
"""


def test_the_client_loads_no_engine_and_no_log() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = json.loads(run.stdout)
    rooms = {name.split(".")[1] for name in loaded}
    assert "client" in rooms
    assert not rooms & {"engine", "recovery", "store", "wal", "disk", "format", "server"}


def test_every_name_at_the_door_leads_somewhere() -> None:
    for name in headwater.__all__:
        assert getattr(headwater, name) is not None


MODULES_OF_RESULTS_AND_ERRORS = (
    core_errors,
    core_results,
    client_errors,
    machine_errors,
    machine_answers,
)


def test_every_result_and_every_error_is_imported_from_the_package() -> None:
    for module in MODULES_OF_RESULTS_AND_ERRORS:
        own = {
            name
            for name, kind in vars(module).items()
            if isinstance(kind, type)
            and kind.__module__ == module.__name__
            and not name.startswith("_")
        }
        assert own <= set(headwater.__all__), module.__name__


def test_a_type_checker_sees_the_names_that_are_imported_late() -> None:
    tree = ast.parse(Path(headwater.__file__).read_text())
    seen = {
        alias.asname or alias.name
        for block in tree.body
        if isinstance(block, ast.If)
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
    assert seen | {"errors", "__version__"} == set(headwater.__all__)


def test_the_package_itself_loads_a_handful_of_modules() -> None:
    program = "import sys, headwater; print(sum(m.startswith('headwater') for m in sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(run.stdout) <= 6


def test_results_of_the_library_and_of_the_client_are_one_type() -> None:
    import headwater.client

    both = set(headwater.__all__) & set(headwater.client.__all__)
    assert {"Appended", "TopicState", "WorkDone", "Stop", "GiveBackError"} <= both
    for name in both:
        assert getattr(headwater, name) is getattr(headwater.client, name)
