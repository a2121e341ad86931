"""A data directory on a block device whose power can fail. Needs root, loop devices and ext4.

Two file systems, one in the other: the server's disk is an image file on an outer file system,
behind a loop device. To lose power the outer one is frozen, which stops every write to the device
in one instant, and the image is copied. The copy has what the kernel had handed to the device by
then, and nothing that was still in the page cache of the inner file system: what was written
without a sync may be gone, what a sync had returned for is there. A device that also reorders
writes between two flushes is not shown by this; `FakeDisk` does that.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headwater.core.units import MIB

DISK_BYTES: Final = 768 * MIB
OUTER_BYTES: Final = 2 * DISK_BYTES
PROGRAMS: Final = ("mkfs.ext4", "mount", "umount", "fsfreeze")
COMMAND_TIMEOUT_S: Final = 60.0
BALLAST: Final = "ballast"
KEPT_FREE_BYTES: Final = 4096


class NoImageError(Exception):
    """This machine or user cannot have one; the message says why."""


def why_no_images() -> str | None:
    """None when images work here, else one line."""
    if os.getuid() != 0:
        return "not root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}"
    with tempfile.TemporaryDirectory(prefix="headwater-torture-probe-") as directory:
        try:
            image = BlockImage(Path(directory), disk_bytes=16 * MIB, outer_bytes=64 * MIB)
        except NoImageError as error:
            return str(error)
        image.close()
    return None


class BlockImage:
    """`data` is the directory to use; it is another one after each loss of power."""

    def __init__(
        self, work: Path, *, disk_bytes: int = DISK_BYTES, outer_bytes: int = OUTER_BYTES
    ) -> None:
        self._outer = work / "outer"
        self._disk = work / "disk"
        self._copy = work / "disk.copy"
        self._mounted: list[Path] = []
        try:
            self._make(work / "outer.img", outer_bytes)
            self._mount(work / "outer.img", self._outer)
            self._make(self._outer / "disk.img", disk_bytes)
            self._mount(self._outer / "disk.img", self._disk)
        except BaseException:
            self.close()
            raise

    @property
    def data(self) -> Path:
        return self._disk / "data"

    def lose_power(self, end_the_server: Callable[[], None]) -> float:
        """Returns the moment (monotonic seconds) from which answers promise nothing."""
        since = time.monotonic()
        run("fsfreeze", "--freeze", str(self._outer))
        try:
            run("cp", "--sparse=always", str(self._outer / "disk.img"), str(self._copy))
        finally:
            run("fsfreeze", "--unfreeze", str(self._outer))
        end_the_server()
        self._unmount(self._disk)
        (self._outer / "disk.img").unlink()
        run("cp", "--sparse=always", str(self._copy), str(self._outer / "disk.img"))
        self._copy.unlink()
        self._mount(self._outer / "disk.img", self._disk)
        self.make_room()  # the copy may have been made while the disk was full
        return since

    def fill(self) -> int:
        """Take all the room there is. Gives how many bytes that was."""
        descriptor = os.open(self._disk / BALLAST, os.O_WRONLY | os.O_CREAT, 0o600)
        taken, chunk = 0, 64 * MIB
        try:
            while chunk >= KEPT_FREE_BYTES:
                try:
                    os.posix_fallocate(descriptor, taken, chunk)
                    taken += chunk
                except OSError:
                    chunk //= 2
        finally:
            os.close(descriptor)
        return taken

    def make_room(self) -> None:
        (self._disk / BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        for path in reversed(list(self._mounted)):
            self._unmount(path)

    @staticmethod
    def _make(path: Path, size: int) -> None:
        with open(path, "wb") as file:
            file.truncate(size)
        run("mkfs.ext4", "-q", "-F", str(path))

    def _mount(self, image: Path, mount_point: Path) -> None:
        mount_point.mkdir(exist_ok=True)
        run("mount", "-o", "loop,noatime", str(image), str(mount_point))
        self._mounted.append(mount_point)

    def _unmount(self, mount_point: Path) -> None:
        # A reader beside the owner may have mapped files that are let go with its garbage only.
        gc.collect()
        for attempt in range(20):
            try:
                run("umount", str(mount_point))
                break
            except NoImageError:
                if attempt == 19:
                    raise
                time.sleep(0.1)
        self._mounted.remove(mount_point)


def run(*words: str) -> None:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoImageError(f"{words[0]}: {error}") from error
    if done.returncode != 0:
        raise NoImageError(f"{words[0]}: {(done.stderr or done.stdout).strip()}")
