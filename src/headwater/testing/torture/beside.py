"""Readers that are no clients: a read-only database beside the owner, and backups of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import headwater
from headwater.core.errors import HeadwaterError
from headwater.engine.read_only import ReadOnlyDatabase
from headwater.testing.torture.actor import AWAY_PAUSE_S, Load
from headwater.testing.torture.reading import gaps_of, read_database, stored_record
from headwater.testing.torture.topic_ledger import (
    Followed,
    TopicLedger,
)
from headwater.testing.torture.topics import TopicActor, WriteKind

KINDS: Final = (
    WriteKind("b-plain", writers=2),
    WriteKind("b-deleted", has_deletes=True),
    WriteKind("b-capped", cap_records=250),
)
PAGE: Final = 500
COMMAND_TIMEOUT_S: Final = 300.0
NOT_NOW: Final = 3
"""Exit code of a backup whose owner removed files under it again and again."""


class Beside(TopicActor):
    name = "beside"

    def __init__(self) -> None:
        super().__init__(KINDS)

    def begin(self, load: Load) -> None:
        super().begin(load)
        load.begin("beside/reader", partial(self._read_beside, load))

    def _read_beside(self, load: Load) -> None:
        random = load.random("beside")
        while not load.stop.is_set():
            try:
                with headwater.open(load.data, read_only=True) as database:
                    for _ in range(random.randint(1, 30)):
                        for kind in KINDS:
                            self._read_some(load, database, kind)
                        load.stop.wait(random.uniform(0, 0.1))
                        if load.stop.is_set():
                            break
            except HeadwaterError as error:
                load.tally.add(f"reads beside the owner put off ({type(error).__name__})")
                load.stop.wait(AWAY_PAUSE_S)

    def _read_some(self, load: Load, database: ReadOnlyDatabase, kind: WriteKind) -> None:
        reader = f"{kind.name}/beside"
        cursor = self._cursors.get(reader, 0)
        database.refresh()
        diff = database.diff(kind.name, cursor, limit=PAGE)
        records = [stored_record(each) for each in diff.records]
        # It may see what is not synced yet: a loss of power may take what it saw, whenever.
        followed = Followed(cursor, diff.next_from_seq, records, gaps_of(diff), at=float("inf"))
        self.ledgers[kind.name].follow(followed)
        self._cursors[reader] = diff.next_from_seq
        load.tally.add("records read beside the owner", len(records))


def back_up(load: Load, work: Path, ledgers: Mapping[str, TopicLedger], cold: Path | None) -> None:
    """A hot backup, verified, restored and compared with what was acked before it began."""
    file, restored = work / "backup.tar", work / "restored"
    began = time.monotonic()
    words = ["backup", str(load.data), str(file), "--verify"]
    if cold is not None and cold.exists():
        words += ["--cold", str(cold)]
    code, said = run(words)
    if code == NOT_NOW:
        load.tally.add("backups put off")
        return
    if code == 0:
        code, said = run(["restore", str(file), str(restored)])
    if code != 0:
        load.errors.append(f"backup: exit code {code}: {said}")
        return
    with headwater.open(restored, read_only=True) as database:
        for name, ledger in ledgers.items():
            reading = read_database(database, name, 0.0)
            load.errors += [f"backup: {each}" for each in ledger.missing_from(reading, began)]
    load.tally.add("backups restored and compared")
    shutil.rmtree(restored)
    file.unlink()


def run(words: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "headwater", *words],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    return done.returncode, f"{done.stdout} {done.stderr}"
