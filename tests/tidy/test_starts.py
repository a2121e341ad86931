"""What a start loads, so that it cannot grow in silence.

A package says in its `__init__` which of its modules load late (`headwater.core.late_names`), and
`headwater.core.arrays` stands for numpy. Whoever makes an empty server load one of them finds it
here: ask the module for the name where it is used (`store.MachineStore`, not `MachineStore`), or
say in the table why every server needs it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from typing import Final

import pytest

from tests.rig.server_process import clean_environment

PROGRAM: Final = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); "
LAST_LINE: Final = "state machines over RCPX"
LIBRARIES: Final = {"httptools", "msgspec", "uvloop", "xxhash"}
"""Those that an empty server loads. msgspec takes typing_extensions where it is installed."""
MODULES_MAX: Final = 290
"""Modules of Headwater in a server that has just started; 475 before they were counted."""
PARTS: Final = {
    "headwater.api", "headwater.cli", "headwater.config", "headwater.core", "headwater.disk",
    "headwater.engine", "headwater.engine.maintenance", "headwater.engine.queues",
    "headwater.engine.routers", "headwater.engine.start", "headwater.engine.state",
    "headwater.engine.topics", "headwater.format", "headwater.format.segment", "headwater.model",
    "headwater.model.queue", "headwater.native", "headwater.observe", "headwater.recovery",
    "headwater.recovery.history", "headwater.recovery.topics", "headwater.server",
    "headwater.server.access", "headwater.server.health", "headwater.server.http",
    "headwater.server.streams", "headwater.store", "headwater.wal", "headwater.wire",
}  # fmt: skip
"""Packages whose modules it may load: topics over HTTP are what every server is asked for."""
FEW: Final = {
    "headwater.engine.machines": 1,
    "headwater.format.kafka": 1,
    "headwater.format.machines": 1,
    "headwater.model.machines": 1,
    "headwater.server.kafka": 1,
    "headwater.server.machines": 3,
    "headwater.server.rcpx": 1,
}
"""How many modules of the other packages: what waits for their first use."""
CLIENT_MODULES_MAX: Final = 66
LIBRARY_MODULES_MAX: Final = 5


@pytest.fixture(scope="module")
def of_a_server(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Modules of a server on a new directory, with all its ports, that was stopped at once."""
    command = [sys.executable, "-c", PROGRAM + "from headwater.cli import main; main()", "serve"]
    command += ["--port", "0", "--data-dir", str(tmp_path_factory.mktemp("start") / "data")]
    ports = {"HEADWATER_KAFKA_PORT": "0", "HEADWATER_RCPX_PORT": "0"}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=clean_environment(**ports),
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith(LAST_LINE):
                break
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, [*lines, out]
    return out.splitlines()[-1].split()


def of_an_import(statement: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + statement],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [name for name in done.stdout.split() if name.split(".")[0] == "headwater"]


def test_an_empty_server_loads_no_library_that_it_does_not_need(of_a_server: list[str]) -> None:
    own = {"headwater", "__main__", "typing_extensions", "sitecustomize", "_distutils_hack"}
    tops = {name.split(".")[0] for name in of_a_server if "cython" not in name}
    assert tops - sys.stdlib_module_names - own == LIBRARIES


def test_an_empty_server_loads_the_parts_that_the_table_names(of_a_server: list[str]) -> None:
    own = [name for name in of_a_server if name.split(".")[0] == "headwater"]
    counts = Counter(name.rpartition(".")[0] for name in own)
    others = {
        part: count for part, count in counts.items() if part not in {"", "headwater", *PARTS}
    }
    assert others == {part: min(count, FEW.get(part, 0)) for part, count in others.items()}
    assert len(own) <= MODULES_MAX


def test_an_import_of_headwater_loads_nearly_nothing() -> None:
    assert len(of_an_import("import headwater")) <= LIBRARY_MODULES_MAX


def test_an_import_of_the_client_loads_no_engine() -> None:
    loaded = of_an_import("import headwater.client")
    assert len(loaded) <= CLIENT_MODULES_MAX
    assert not [name for name in loaded if name.startswith("headwater.engine")]
