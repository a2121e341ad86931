"""A log is written by eight writers, its process is killed, and nothing acknowledged is lost.

Run it with `make demo-wal`. A child process writes durable records and tells every acknowledgement
through a pipe. It is killed with SIGKILL in the middle. The parent recovers the log and compares.
Then one byte of a copy is damaged, to show how that is refused and what a repair would do.

Uses a temporary directory and no network. Exit code 1 if anything acknowledged was lost.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

from headwater.config.wal import WalSettings
from headwater.core.clock import SystemClock
from headwater.core.durability import Durability
from headwater.core.errors import DamageError
from headwater.core.units import MIB
from headwater.disk import PosixDisk
from headwater.format.frame import FrameFlag, FrameType, encode_frame
from headwater.recovery.topics.repair import open_wal
from headwater.wal.ticket import Ticket

WRITERS = 8
SETTINGS = WalSettings(file_bytes=2 * MIB)

Seqs = dict[int, list[int]]
"""Topic -> the seqs of it, in the order they were told or found."""


def payload(topic: int, seq: int) -> bytes:
    """What a record must hold, so that a wrong one is noticed too."""
    return b'{"topic":%d,"seq":%d,"text":"%s"}' % (topic, seq, b"water " * 20)


def write_until_killed(directory: Path) -> None:
    """The child: every writer waits for its acknowledgement, tells it, and writes the next."""
    clock = SystemClock()
    log = open_wal(PosixDisk(), directory, SETTINGS, clock)
    log.start()

    def write(topic: int) -> None:
        seq = 0
        while True:
            seq += 1
            record = encode_frame(
                FrameType.APPEND,
                topic,
                seq=seq,
                ts=clock.wall_ms(),
                flags=FrameFlag.DURABLE,
                data=payload(topic, seq),
            )
            ticket = Ticket(record, 1, Durability.FSYNC)
            log.wal.submit(topic, ticket)
            ticket.wait()
            os.write(sys.stdout.fileno(), b"%d %d\n" % (topic, seq))

    threads = [threading.Thread(target=write, args=(topic,)) for topic in range(1, WRITERS + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def collect_acks(directory: Path, seconds: float) -> Seqs:
    """Start the child, listen, kill it, and keep listening until the pipe is empty."""
    acked: Seqs = defaultdict(list)
    with subprocess.Popen(
        [sys.executable, __file__, "--write-to", str(directory)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None

        def listen() -> None:
            assert child.stdout is not None
            for line in child.stdout:
                if line.endswith("\n"):  # a line cut off by the kill was not told
                    topic, seq = map(int, line.split())
                    acked[topic].append(seq)

        listener = threading.Thread(target=listen)
        listener.start()
        show_progress(child, acked, seconds)
        child.send_signal(signal.SIGKILL)
        child.wait()
        listener.join()
    print(f"\n  killed process {child.pid} with SIGKILL, no warning, no clean stop")
    return acked


def show_progress(child: subprocess.Popen[str], acked: Seqs, seconds: float) -> None:
    """Count down from the first acknowledgement on, so that a slow start is not counted."""
    give_up_at = time.monotonic() + 30
    while not acked and child.poll() is None and time.monotonic() < give_up_at:
        time.sleep(0.01)
    started = time.monotonic()
    while child.poll() is None and time.monotonic() < started + seconds:
        time.sleep(min(0.1, seconds / 5))
        count = sum(map(len, list(acked.values())))
        if sys.stdout.isatty():
            rate = count / (time.monotonic() - started)
            print(f"\r  {count:,} records acknowledged, {rate:,.0f} a second ", end="", flush=True)
    print(f"\r  {sum(map(len, acked.values())):,} records acknowledged so far           ", end="")


def recover(directory: Path) -> Seqs:
    """Open the log again and read every record back."""
    log = open_wal(PosixDisk(), directory, SETTINGS, SystemClock())
    found: Seqs = defaultdict(list)
    started = time.monotonic()
    for group in log.replay():
        for frame in group.frames():
            if frame.type is FrameType.APPEND and frame.data == payload(frame.topic_id, frame.seq):
                found[frame.topic_id].append(frame.seq)
    elapsed_ms = (time.monotonic() - started) * 1_000
    report = log.recovered.report
    print(f"  {report.groups:,} groups, {report.frames:,} frames, replayed in {elapsed_ms:,.0f} ms")
    for finding in report.findings:
        print(f"  {finding.line()}")
    log.start()
    log.close()
    return found


def judge(acked: Seqs, found: Seqs) -> int:
    """Print what was promised against what is there; returns how many promises were broken."""
    lost = wrong = unasked = 0
    for topic in sorted(acked.keys() | found.keys()):
        here = found[topic]
        lost += len(set(acked[topic]) - set(here))
        unasked += len(set(here) - set(acked[topic]))
        wrong += here != list(range(1, len(here) + 1))
    promised = sum(map(len, acked.values()))
    print(f"  acknowledged before the kill   {promised:>8,}")
    print(f"  found after recovery           {sum(map(len, found.values())):>8,}")
    print(f"  written but not yet told       {unasked:>8,}   (may be kept, as a whole)")
    print(f"  acknowledged and lost          {lost:>8,}")
    print(f"  topics with gaps or disorder   {wrong:>8,}")
    return lost + wrong + (promised == 0)


def damage_a_copy(directory: Path, copy: Path) -> bool:
    """Change one synced byte; True when the log refuses it and says where."""
    shutil.copytree(directory, copy)
    path = min((copy / "wal").glob("wal-*.log"))
    contents = bytearray(path.read_bytes())
    at = contents.index(b"water", 3_000)
    contents[at] ^= 0x20
    path.write_bytes(contents)
    print(f"  changed byte {at} of {path.name} in a copy, from 'w' to 'W'")
    try:
        open_wal(PosixDisk(), copy, SETTINGS, SystemClock())
    except DamageError as error:
        print(f"  refused: {error}")
    else:
        print("  NOT refused: a damaged record would have been served")
        return False
    print("\n  $ headwater wal repair COPY")
    command = [sys.executable, "-c", "from headwater.cli import main; main()"]
    shown = subprocess.run(
        [*command, "wal", "repair", str(copy)], capture_output=True, text=True, check=False
    )
    for line in (shown.stdout + shown.stderr).splitlines():
        print(f"  {line}")
    return shown.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Write a log, kill the writer, recover.")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long to write")
    parser.add_argument("--write-to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write_to is not None:
        write_until_killed(options.write_to)
        return 0
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as scratch:
        data = Path(scratch) / "data"
        print(f"1. {WRITERS} writers, each waiting for its disk, in {data}")
        acked = collect_acks(data, options.seconds)
        print("\n2. Recovery")
        found = recover(data)
        print("\n3. What was promised, and what is there")
        broken = judge(acked, found)
        print("\n4. Damage to bytes that were synced")
        refused = damage_a_copy(data, Path(scratch) / "copy")
    if broken or not refused:
        print("\nFAILED: a promise was broken. Please report this.")
        return 1
    print("\nNothing acknowledged was lost, and damage was refused instead of served.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
