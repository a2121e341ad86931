"""`headwater doctor`: is this machine, and this directory, fit for a durable log?"""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Final

import typer

from headwater.cli.disk_probe import REMOTE_FILE_SYSTEMS, Probe, doubts, file_system_of, probe
from headwater.cli.files import read_text_file
from headwater.cli.output import complain, printable, say, say_json, say_table
from headwater.cli.place import JsonOption
from headwater.config.server import LimitSettings
from headwater.config.wal import default_shards
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
class Check:
    what: str
    found: str
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
    place = directory.resolve()
    checks = [*_software(), *_limits()]
    measured = _measure(place, seconds, checks)
    bad = [check for check in checks if check.verdict == BAD]
    advice = [check.advice for check in checks if check.advice]
    report = {
        "directory": str(place),
        "ok": not bad,
        "checks": [
            {"what": c.what, "found": c.found, "verdict": c.verdict, "advice": c.advice}
            for c in checks
        ],
        "sync_us": None if measured is None else _percentiles(measured),
        "suggested": {"wal_shards": default_shards()},
    }
    keep_report(PosixDisk(), place, "doctor", SystemClock().wall_ms(), report)
    if as_json:
        say_json(report)
    else:
        say_table(["check", "found", ""], [[c.what, c.found, c.verdict] for c in checks])
        for line in advice:
            say(f"- {printable(line)}")
        if not advice:
            say("Nothing to improve; the defaults fit this machine.")
    if bad:
        complain(f"{bad[0].what}: {bad[0].found}")
        raise typer.Exit(StorageError.exit_code)


def _software() -> list[Check]:
    found = []
    for package in ("uvloop", "httptools"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            return [Check(package, "missing", BAD, f"pip install {package}")]
    return [
        Check("python", f"{platform.python_version()}, {', '.join(found)}"),
        _compiled(),
        Check("system", f"{platform.system()} {platform.release()}, {os.cpu_count()} cores"),
    ]


def _compiled() -> Check:
    absent = missing()
    if not absent:
        return Check("hot loops", "compiled")
    advice = (
        "Headwater was installed without a compiler, or HEADWATER_PURE is set: it works, slower. "
        "Install gcc and Python's headers (apt-get install gcc python3-dev), then install it again"
    )
    found = "not compiled" if len(absent) == len(MODULES) else f"not compiled: {', '.join(absent)}"
    return Check("hot loops", found, NOTE, advice)


def _limits() -> list[Check]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LimitSettings().connections
    told = "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return [Check("open files", told)]
    most = "no limit" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    advice = (
        f"each connection and each segment takes an open file: raise the limit of {soft:,} "
        f"(ulimit -n, LimitNOFILE=; at most {most} here) before {wanted:,} clients connect"
    )
    return [Check("open files", told, NOTE, advice)]


def _measure(place: Path, seconds: float, checks: list[Check]) -> Probe | None:
    disk = PosixDisk()
    if not disk.exists(place) and disk.is_directory(place.parent):
        place = place.parent  # the data directory is made at the first start
    if not disk.is_directory(place):
        raise RequestError(f"there is no directory {place}; check the path")
    kind = _file_system(place)
    checks.append(_about_file_system(place, kind))
    free = disk.free_bytes(place)
    checks.append(_about_space(free))
    if free < 64 * MIB:
        return None
    try:
        found = probe(disk, place, SystemClock(), seconds)
    except SyncError as error:
        checks.append(Check("fdatasync", "failed", BAD, str(error)))
        return None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        advice = f"Headwater must be able to make files in {place}"
        checks.append(Check("directory", f"cannot be written: {why}", BAD, advice))
        return None
    checks += _about_disk(found, kind)
    return found


def _file_system(place: Path) -> str:
    try:
        return file_system_of(read_text_file("/proc/mounts"), place)
    except RequestError:
        return "unknown"


def _about_file_system(place: Path, kind: str) -> Check:
    found = f"{printable(str(place))} on {kind}"
    if kind in REMOTE_FILE_SYSTEMS:
        advice = f"{kind} is somewhere else: locks and syncs there promise less; use a local disk"
        return Check("directory", found, NOTE, advice)
    return Check("directory", found)


def _about_space(free: int) -> Check:
    told = f"{free / GIB:,.1f} GiB free"
    if free < FREE_BYTES_LEAST:
        return Check("space", told, BAD, "a full disk refuses writes; make room, 10 GiB or more")
    if free < FREE_BYTES_GOOD:
        return Check("space", told, NOTE, "not much room: watch it, or set caps and ages")
    return Check("space", told)


def _about_disk(found: Probe, kind: str) -> list[Check]:
    p50, p99, worst = (found.percentile_us(share) for share in (0.5, 0.99, 1.0))
    told = f"{_ms(p50)} half, {_ms(p99)} 99 %, {_ms(worst)} worst of {len(found.sync_us):,}"
    checks = [Check("fdatasync, 4 KiB", told)]
    rate = f"{found.syncs_per_s:,.0f} a second by one writer"
    if p50 > SLOW_US:
        advice = (
            f"a durable write waits {_ms(p50)} here: write in batches or from many connections, "
            "which share a sync, or choose durability disk for what may be lost with the power"
        )
        checks.append(Check("durable writes", rate, NOTE, advice))
    elif p99 > SLOW_US and p99 > UNEVEN * p50:
        advice = f"one sync in a hundred takes over {_ms(p99)}: something else uses this disk"
        checks.append(Check("durable writes", rate, NOTE, advice))
    else:
        checks.append(Check("durable writes", rate))
    checks.append(Check("bulk", f"{found.bulk_bytes_per_s / MIB:,.0f} MiB a second, synced"))
    doubt = doubts(found, kind)
    if doubt is None:
        checks.append(Check("honesty", "the times are those of a disk that keeps its word"))
    else:
        checks.append(Check("honesty", "this disk cannot be believed", BAD, doubt))
    return checks


def _percentiles(found: Probe) -> dict[str, int]:
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {
        "count": len(found.sync_us),
        **{name: found.percentile_us(share) for name, share in shares.items()},
    }


def _ms(us: int) -> str:
    return f"{us / US_PER_MS:.2f} ms"
