"""What a disk does with a durable write: a plain loop of write and fdatasync.

Also checks for signs of a disk that acknowledges and keeps nothing: a file system in memory, syncs
faster than any storage, bytes that would have had to arrive faster than any bus.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from headwater.core.clock import Clock
from headwater.core.units import GIB, KIB, MIB, US_PER_S
from headwater.disk import Disk, File, OpenMode, sync_file, write_all

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
