"""A backup of a database in use, checked, and restored to the end and to an earlier moment.

Run it with `python examples/backup_and_restore.py`. On the command line the same is
`headwater backup DIR FILE --verify` and `headwater restore FILE DIR --to-seq orders=3`.
It uses a temporary directory and no network.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import headwater
from headwater import EngineSettings
from headwater.core.clock import SystemClock
from headwater.disk import PosixDisk
from headwater.engine.backup import RestorePoint, make_backup, restore_backup, verify_backup


def quietly(_total_bytes: int) -> Callable[[int], None]:
    """Called with the bytes to copy; gives what is called with each piece. For a progress bar."""
    return lambda _bytes: None


def main(scratch: Path) -> None:
    disk, clock = PosixDisk(), SystemClock()
    data, file = scratch / "data", scratch / "orders.backup"
    with headwater.open(data) as db:
        db.append("orders", [{"data": {"id": number}} for number in range(1, 6)])

        # The database stays open and may be written to. Everything that was acknowledged before the
        # start is in the backup, which gets its name when it is complete and on the disk.
        report = make_backup(disk, data, file, EngineSettings(), clock, quietly)
        print(f"backed up {report.records} records")
        db.append("orders", {"data": {"id": 6}})

    # Unpack it, compare every checksum, read every record.
    verified = verify_backup(disk, file, clock, quietly)
    print(f"verified {verified.records} records")

    restore_backup(disk, file, scratch / "whole", RestorePoint(), clock, quietly)
    print("restored:", seqs_in(scratch / "whole"))

    # Back to a moment: later records are deleted, and their seqs are not given again.
    point = RestorePoint(seqs={"orders": 3})
    restore_backup(disk, file, scratch / "earlier", point, clock, quietly)
    print("restored to 3:", seqs_in(scratch / "earlier"))
    with headwater.open(scratch / "earlier") as db:
        print("goes on with", db.append("orders", {"data": "new"}).first_seq)


def seqs_in(directory: Path) -> list[int]:
    with headwater.open(directory) as db:
        return [record.seq for record in db.diff("orders").records]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="headwater-example-") as scratch:
        main(Path(scratch))
