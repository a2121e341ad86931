"""Damage that reads and loading met: each range once, for logs, readiness and metrics.

A range is noted when a read finds it, not at each later read: from then on the topic knows the seqs
and reports them to readers by itself. The server polls for new ranges, so damage costs a reader
nothing but finding it. Any thread may call `note`.
"""

from __future__ import annotations

import threading
from pathlib import PurePath
from typing import Final, NamedTuple

from headwater.model.damage import DamagedSeqs
from headwater.store.checked_reads import RecordDamage

RANGES_MAX: Final = 1_000
"""Damaged ranges that are remembered; further ones are only counted."""


DamageKey = tuple[str, int | None]
"""A topic, and the organisation if it is one of Kafka's."""


class DamagedRange(NamedTuple):
    """What an operator needs to find it."""

    topic: str
    path: str
    offset: int
    first_seq: int
    last_seq: int
    reason: str
    repaired: bool
    """It was in an index and could be read again from the data: no record is missing."""
    organisation: int | None = None
    """Whose Kafka topic it is in; None for other topics."""

    @property
    def file(self) -> str:
        """The file's name alone, for those who need not know where the server keeps its data."""
        return PurePath(self.path).name


class DamageLedger:
    """All damaged ranges since the start, in the order in which they were found."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[DamagedRange] = set()
        self.ranges: list[DamagedRange] = []
        """The first of them; `count` is of all."""
        self.count = 0
        self.findings: list[RecordDamage] = []
        self._unreported: list[DamagedRange] = []
        self._seqs: dict[DamageKey, DamagedSeqs] = {}

    def note(self, topic: str, finding: RecordDamage, organisation: int | None = None) -> bool:
        """False when this range is known already."""
        entry = DamagedRange(
            topic,
            str(finding.path),
            finding.offset,
            finding.seq,
            finding.end_seq,
            finding.reason,
            finding.repaired,
            organisation,
        )
        with self._lock:
            if entry in self._known:
                return False
            self.count += 1
            if not entry.repaired:
                seqs = self._seqs.setdefault((topic, organisation), DamagedSeqs())
                seqs.add(entry.first_seq, entry.last_seq + 1)
            if len(self.ranges) < RANGES_MAX:
                self._known.add(entry)
                self.ranges.append(entry)
                self._unreported.append(entry)
                self.findings.append(finding)
            return True

    def forget(self, *topics: str, organisation: int | None = None) -> None:
        """These are gone, and their files with them."""
        gone = {(topic, organisation) for topic in topics}
        with self._lock:
            kept = [
                at
                for at, entry in enumerate(self.ranges)
                if (entry.topic, entry.organisation) not in gone
            ]
            if len(kept) == len(self.ranges) and gone.isdisjoint(self._seqs):
                return
            self.ranges = [self.ranges[at] for at in kept]
            self.findings = [self.findings[at] for at in kept]
            self._known = set(self.ranges)
            for whose in gone:
                self._seqs.pop(whose, None)

    def take_new(self) -> list[DamagedRange]:
        """Those that were found since the last call."""
        if not self._unreported:
            return []
        with self._lock:
            unreported, self._unreported = self._unreported, []
            return unreported

    @property
    def overflowed(self) -> bool:
        """More ranges were found than are remembered."""
        return self.count > RANGES_MAX

    @property
    def records(self) -> dict[DamageKey, int]:
        """How many records were found that cannot be read, by topic and organisation."""
        with self._lock:
            return {whose: sum(map(len, seqs)) for whose, seqs in self._seqs.items()}

    def find(self, topic: str, seq: int) -> DamagedRange | None:
        """Where a record that cannot be read lies, if that was among the first to be found."""
        lasting = (each for each in self.ranges if not each.repaired and each.topic == topic)
        return next((each for each in lasting if each.first_seq <= seq <= each.last_seq), None)
