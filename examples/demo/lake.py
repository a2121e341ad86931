"""Spark lands the topic in a Delta table; another library reads the table."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import shop
from server import LOOK_EVERY_S, clean_environment
from stage import BrokenPromiseError, Figures, NotHereError, Stage, same

FIELDS = (
    "kind string, user string, order string, product string, pieces int, cents long, city string"
)
END_S = 10


def finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`, but Ctrl-C ends Spark's Java too, which does not listen to it."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        start_new_session=True,
    )
    try:
        out, err = process.communicate()
    except BaseException:
        end_group(process)
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def end_group(leader: subprocess.Popen[str]) -> None:
    """Politely first: Java removes its temporary files then."""
    with contextlib.suppress(ProcessLookupError):  # which says that nobody is left
        os.killpg(leader.pid, signal.SIGTERM)
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            leader.poll()
            os.killpg(leader.pid, 0)
            time.sleep(LOOK_EVERY_S)
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()


def run(stage: Stage) -> Figures:
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise NotHereError('Spark is missing: pip install "headwater[spark]"') from error
    table = stage.scratch / "lake" / "shop"
    command = [
        *(sys.executable, "-m", "headwater", "pipeline", "lake", "--url", stage.url),
        *("--topic", shop.EVENTS, "--table", str(table), "--fields", FIELDS, "--json"),
    ]
    started = time.monotonic()
    with stage.console.status("   Spark starts, reads the topic and writes a Delta table"):
        done = finished(command)
    elapsed_s = time.monotonic() - started
    if done.returncode:
        raise BrokenPromiseError(f"the pipeline ended with {done.returncode}: {done.stderr[-600:]}")
    rows = DeltaTable(str(table)).to_pyarrow_table()
    same("rows of the table", stage.events, rows.num_rows)
    cents: dict[str, int] = {}
    for product, paid in zip(rows["product"].to_pylist(), rows["cents"].to_pylist(), strict=True):
        cents[product] = cents.get(product, 0) + (paid or 0)
    best = max(cents, key=lambda product: cents[product])
    return {
        "Spark": f"{rows.num_rows:,} rows in a Delta table, {elapsed_s:.0f} s with its start",
        "asked of it": f"{sum(cents.values()) / 100:,.2f} taken, most of it for the {best} "
        f"({cents[best] / 100:,.2f})",
    }
