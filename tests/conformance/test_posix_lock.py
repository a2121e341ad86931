"""The real directory lock between real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.core.errors import DirectoryInUseError
from headwater.disk import PosixDisk

HOLDER = """
import sys
from pathlib import Path
from headwater.disk import PosixDisk
lock = PosixDisk().lock_directory(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_does_not_leave_its_lock_behind(tmp_path: Path) -> None:
    disk = PosixDisk()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryInUseError, match=f"process {holder.pid}"):
            disk.lock_directory(tmp_path)
        holder.send_signal(signal.SIGKILL)
        assert holder.wait(timeout=30) == -signal.SIGKILL
    disk.lock_directory(tmp_path).release()
