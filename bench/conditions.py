"""What a figure depends on besides the code: machine, kernel, file system, Python, libraries."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path


def describe_machine(directory: Path) -> dict[str, str]:
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(directory),
        "python": _python(),
        "libraries": ", ".join(_libraries("xxhash", "numpy", "uvloop")),
        "commit": _commit(),
    }


def load() -> str:
    """How busy the machine is, by others and by us: the average of the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _python() -> str:
    """Which interpreter, and whose: distributions build theirs by a profile, and it shows."""
    whose = "of the system" if sys.base_prefix == "/usr" else "not of the system"
    return f"{platform.python_implementation()} {platform.python_version()} ({whose})"


def _file_system(directory: Path) -> str:
    """Type and device of the mount that holds the directory: the longest prefix wins."""
    found = ("", "unknown")
    resolved = directory.resolve()
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        device, point, kind = line.split()[:3]
        if resolved.is_relative_to(point) and len(point) > len(found[0]):
            found = (point, f"{kind} on {device}")
    return found[1]


def _libraries(*names: str) -> list[str]:
    found = []
    for name in names:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(_imported(name))
    return found


def _imported(name: str) -> str:
    """As in a packed environment, which has modules and not what pip wrote about them."""
    try:
        module = import_module(name)
    except ImportError:
        return f"no {name}"
    # xxhash has the one, the others the other.
    return f"{name} {getattr(module, '__version__', None) or getattr(module, 'VERSION', 'unknown')}"


def _commit() -> str:
    here = Path(__file__).resolve().parent
    if shutil.which("git") is None:
        return "unknown"
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=here, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return described.stdout.strip() or "unknown"
