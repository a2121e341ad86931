"""What an import loads, seen in a new interpreter, and what stands at the door of the package."""

from __future__ import annotations

import json
import subprocess
import sys

import headwater

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


def test_results_of_the_library_and_of_the_client_are_one_type() -> None:
    import headwater.client

    both = set(headwater.__all__) & set(headwater.client.__all__)
    assert {"Appended", "TopicState", "WorkDone", "Stop", "GiveBackError"} <= both
    for name in both:
        assert getattr(headwater, name) is getattr(headwater.client, name)
