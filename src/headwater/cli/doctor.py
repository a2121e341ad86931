"""`headwater doctor`: is this machine, and this directory, fit for a durable log?"""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from headwater.cli.disk_probe import REMOTE_FILE_SYSTEMS, Probe, doubts, file_system_of, probe
from headwater.cli.files import read_text_file
from headwater.cli.option_groups import JsonOption
from headwater.cli.output import complain, printable, say, say_json, say_table
from headwater.config.server import LimitSettings
from headwater.config.wal import WalSettings
from headwater.core.clock import SystemClock
from headwater.core.errors import RequestError, StorageError, SyncError
from headwater.core.units import GIB, MIB, US_PER_MS
from headwater.disk import PosixDisk
from headwater.engine.maintenance.reports import keep_report
from headwater.native import MODULES, missing

OK: Final = "ok"
NOTE: Final = "note"
BAD: Final = "BAD"
FREE_BYTES_LEAST: Final = 1 * GIB
FREE_BYTES_GOOD: Final = 10 * GIB
SLOW_US: Final = 5 * US_PER_MS
UNEVEN: Final = 20
"""So many times slower than half of them is uneven, when it is slow too."""


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    what: str
    value: str
    verdict: str = OK
    advice: str = ""


def doctor(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where the data directory is or will be.")
    ] = Path(),
    seconds: Annotated[
        float, typer.Option(min=0.1, max=60, metavar="S", help="How long the disk is measured.")
    ] = 2.0,
    as_json: JsonOption = False,
) -> None:
    """Measure the disk's fdatasync with a plain loop, and check what a log needs.

    Writes a file of 32 MiB into the directory and removes it. Exit code 5 when something is bad
    enough to lose records or to stop the server.
    """
    path = directory.resolve()
    checks = [*_software(), *_limits()]
    measured = _measure(path, seconds, checks)
    report = {
        "directory": str(path),
        **checks_as_json(checks),
        "sync_us": None if measured is None else _percentiles(measured),
        "suggested": {"wal_shards": WalSettings().shards},
    }
    keep_report(PosixDisk(), path, "doctor", SystemClock().wall_ms(), report)
    if as_json:
        say_json(report)
    else:
        say_checks(checks)
        if not any(check.advice for check in checks):
            say("Nothing to improve; the defaults fit this machine.")
    fail_when_bad(checks, StorageError.exit_code)


def bad_ones(checks: list[DoctorCheck]) -> list[DoctorCheck]:
    return [check for check in checks if check.verdict == BAD]


def checks_as_json(checks: list[DoctorCheck]) -> dict[str, Any]:
    rows = [
        {"what": c.what, "found": c.value, "verdict": c.verdict, "advice": c.advice} for c in checks
    ]
    return {"ok": not bad_ones(checks), "checks": rows}


def say_checks(checks: list[DoctorCheck]) -> None:
    say_table(["check", "found", ""], [[c.what, c.value, c.verdict] for c in checks])
    # Several things are missed for the same reason.
    for line in dict.fromkeys(check.advice for check in checks if check.advice):
        say(f"- {printable(line)}")


def fail_when_bad(checks: list[DoctorCheck], exit_code: int) -> None:
    for check in bad_ones(checks)[:1]:
        complain(f"{check.what}: {check.value}")
        raise typer.Exit(exit_code)


def _software() -> list[DoctorCheck]:
    versions = []
    for package in ("uvloop", "httptools"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            return [DoctorCheck(package, "missing", BAD, f"pip install {package}")]
    return [
        DoctorCheck("python", f"{platform.python_version()}, {', '.join(versions)}"),
        _compiled(),
        DoctorCheck("system", f"{platform.system()} {platform.release()}, {os.cpu_count()} cores"),
    ]


def _compiled() -> DoctorCheck:
    absent = missing()
    if not absent:
        return DoctorCheck("hot loops", "compiled")
    advice = (
        "Headwater was installed without a compiler, or HEADWATER_PURE is set: it works, slower. "
        "Install gcc and Python's headers (apt-get install gcc python3-dev), then install it again"
    )
    state = "not compiled" if len(absent) == len(MODULES) else f"not compiled: {', '.join(absent)}"
    return DoctorCheck("hot loops", state, NOTE, advice)


def _limits() -> list[DoctorCheck]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LimitSettings().connections
    limit = "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return [DoctorCheck("open files", limit)]
    most = "no limit" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    advice = (
        f"each connection and each segment takes an open file: raise the limit of {soft:,} "
        f"(ulimit -n, LimitNOFILE=; at most {most} here) before {wanted:,} clients connect"
    )
    return [DoctorCheck("open files", limit, NOTE, advice)]


def _measure(path: Path, seconds: float, checks: list[DoctorCheck]) -> Probe | None:
    disk = PosixDisk()
    if not disk.exists(path) and disk.is_directory(path.parent):
        path = path.parent  # the data directory is made at the first start
    if not disk.is_directory(path):
        raise RequestError(f"there is no directory {path}; check the path")
    kind = _file_system(path)
    checks.append(_about_file_system(path, kind))
    free = disk.free_bytes(path)
    checks.append(_about_space(free))
    if free < 64 * MIB:
        return None
    try:
        measured = probe(disk, path, SystemClock(), seconds)
    except SyncError as error:
        checks.append(DoctorCheck("fdatasync", "failed", BAD, str(error)))
        return None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        advice = f"Headwater must be able to make files in {path}"
        checks.append(DoctorCheck("directory", f"cannot be written: {why}", BAD, advice))
        return None
    checks += _about_disk(measured, kind)
    return measured


def _file_system(path: Path) -> str:
    try:
        return file_system_of(read_text_file("/proc/mounts"), path)
    except RequestError:
        return "unknown"


def _about_file_system(path: Path, kind: str) -> DoctorCheck:
    value = f"{printable(str(path))} on {kind}"
    if kind in REMOTE_FILE_SYSTEMS:
        advice = f"{kind} is somewhere else: locks and syncs there promise less; use a local disk"
        return DoctorCheck("directory", value, NOTE, advice)
    return DoctorCheck("directory", value)


def _about_space(free: int) -> DoctorCheck:
    room = f"{free / GIB:,.1f} GiB free"
    if free < FREE_BYTES_LEAST:
        return DoctorCheck(
            "space", room, BAD, "a full disk refuses writes; make room, 10 GiB or more"
        )
    if free < FREE_BYTES_GOOD:
        return DoctorCheck("space", room, NOTE, "not much room: watch it, or set caps and ages")
    return DoctorCheck("space", room)


def _about_disk(measured: Probe, kind: str) -> list[DoctorCheck]:
    p50, p99, worst = (measured.percentile_us(share) for share in (0.5, 0.99, 1.0))
    times = f"{_ms(p50)} half, {_ms(p99)} 99 %, {_ms(worst)} worst of {len(measured.sync_us):,}"
    checks = [DoctorCheck("fdatasync, 4 KiB", times)]
    rate = f"{measured.syncs_per_s:,.0f} a second by one writer"
    if p50 > SLOW_US:
        advice = (
            f"a durable write waits {_ms(p50)} here: write in batches or from many connections, "
            "which share a sync, or choose durability disk for what may be lost with the power"
        )
        checks.append(DoctorCheck("durable writes", rate, NOTE, advice))
    elif p99 > SLOW_US and p99 > UNEVEN * p50:
        advice = f"one sync in a hundred takes over {_ms(p99)}: something else uses this disk"
        checks.append(DoctorCheck("durable writes", rate, NOTE, advice))
    else:
        checks.append(DoctorCheck("durable writes", rate))
    checks.append(
        DoctorCheck("bulk", f"{measured.bulk_bytes_per_s / MIB:,.0f} MiB a second, synced")
    )
    doubt = doubts(measured, kind)
    if doubt is None:
        checks.append(DoctorCheck("honesty", "the times are those of a disk that keeps its word"))
    else:
        checks.append(DoctorCheck("honesty", "this disk cannot be believed", BAD, doubt))
    return checks


def _percentiles(measured: Probe) -> dict[str, int]:
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {
        "count": len(measured.sync_us),
        **{name: measured.percentile_us(share) for name, share in shares.items()},
    }


def _ms(us: int) -> str:
    return f"{us / US_PER_MS:.2f} ms"
