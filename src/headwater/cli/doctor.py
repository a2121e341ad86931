"""`headwater doctor`: is this machine, and this directory, fit for a durable log?

What a disk does with a durable write is measured by a plain loop of write and fdatasync. It is also
checked for signs of a disk that acknowledges and keeps nothing: a file system in memory, syncs
faster than any storage, bytes that would have had to arrive faster than any bus.
"""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath
from typing import Annotated, Any, Final

import typer

from headwater.cli.files import read_text_file
from headwater.cli.option_groups import JsonOption
from headwater.cli.output import complain, printable, say, say_json, say_table
from headwater.config.server import LimitSettings
from headwater.config.wal import WalSettings
from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import RequestError, StorageError, SyncError
from headwater.core.units import GIB, KIB, MIB, US_PER_MS, US_PER_S
from headwater.disk import Disk, File, OpenMode, PosixDisk, sync_file, write_all
from headwater.engine.maintenance.reports import keep_report
from headwater.native import MODULES, missing

PROBE_NAME: Final = "headwater-doctor.tmp"
BLOCK_BYTES: Final = 4 * KIB
PREPARED_BYTES: Final = 8 * MIB
BULK_BYTES: Final = 32 * MIB
SYNCS_MAX: Final = 1_000
SYNCS_MIN: Final = 20
TRUSTED_US: Final = 25
"""Flash takes longer than this for a write and a sync; only a cache can be faster."""
TRUSTED_BYTES_PER_S: Final = 16 * GIB
MEMORY_FILE_SYSTEMS: Final = frozenset(("tmpfs", "ramfs", "devtmpfs"))
REMOTE_FILE_SYSTEMS: Final = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs")
)


@dataclass(frozen=True, slots=True)
class Probe:
    sync_us: tuple[int, ...]
    """Each of the syncs of one block, write included, sorted."""
    bulk_bytes_per_s: int

    def percentile_us(self, share: float) -> int:
        return self.sync_us[min(len(self.sync_us) - 1, int(len(self.sync_us) * share))]

    @property
    def syncs_per_s(self) -> float:
        return len(self.sync_us) * US_PER_S / max(sum(self.sync_us), 1)


def probe(disk: Disk, directory: PurePath, clock: Clock, seconds: float) -> Probe:
    """Write into a file of our own, which is gone afterwards."""
    path = directory / PROBE_NAME
    if disk.exists(path):
        disk.unlink(path)
    file = disk.open(path, OpenMode.CREATE)
    try:
        write_all(file, 0, [bytes(PREPARED_BYTES)])
        sync_file(file)
        times = _loop(file, clock, int(seconds * US_PER_S))
        bulk = _bulk(file, clock)
    finally:
        file.close()
        disk.unlink(path)
    return Probe(tuple(sorted(times)), bulk)


def _loop(file: File, clock: Clock, for_us: int) -> list[int]:
    times: list[int] = []
    block = b"headwater doctor" * (BLOCK_BYTES // 16)
    until = clock.monotonic_us() + for_us
    while len(times) < SYNCS_MIN or (len(times) < SYNCS_MAX and clock.monotonic_us() < until):
        offset = len(times) * BLOCK_BYTES % PREPARED_BYTES
        began = clock.monotonic_us()
        write_all(file, offset, [block])
        sync_file(file)
        times.append(clock.monotonic_us() - began)
    return times


def _bulk(file: File, clock: Clock) -> int:
    began = clock.monotonic_us()
    write_all(file, 0, [b"\x5a" * BULK_BYTES])
    sync_file(file)
    return BULK_BYTES * US_PER_S // max(clock.monotonic_us() - began, 1)


def doubts(measured: Probe, file_system: str) -> str | None:
    """Why this disk should not be believed; None when nothing speaks against it."""
    if file_system in MEMORY_FILE_SYSTEMS:
        return f"{file_system} is memory: everything is gone with the machine"
    if measured.percentile_us(0.5) < TRUSTED_US:
        return (
            f"half of the syncs took less than {TRUSTED_US} us: no storage is that fast, so a "
            "cache answers; unless it has a battery, a power loss takes what was acknowledged"
        )
    if measured.bulk_bytes_per_s > TRUSTED_BYTES_PER_S:
        return (
            f"{BULK_BYTES // MIB} MiB were synced at {measured.bulk_bytes_per_s // GIB} GiB a "
            "second: that did not reach a disk"
        )
    return None


def file_system_of(mounts: str, path: PurePath) -> str:
    """The type of the file system a path is on, from the text of /proc/mounts."""
    best, kind = -1, "unknown"
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        mounted = PurePath(words[1].replace("\\040", " "))
        if (mounted == path or mounted in path.parents) and len(mounted.parts) >= best:
            best, kind = len(mounted.parts), words[2]
    return kind


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
