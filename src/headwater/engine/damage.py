"""Damage that readers and loading met: each place once, for logs, readiness and metrics.

A place is noted when it is found and not each time somebody comes to it: the topic knows the seqs
from then on and tells readers by itself. Whoever reports it polls, so that finding damage costs a
reader nothing but the finding. Any thread may note.
"""

from __future__ import annotations

import threading
from pathlib import PurePath
from typing import Final, NamedTuple

from headwater.model.damage import DamagedSeqs
from headwater.store.checked_reads import Finding

RANGES_MAX: Final = 1_000
"""Damaged places that are remembered; further ones are only counted."""


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
    """All places of this life, in the order in which they were found."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[DamagedRange] = set()
        self.ranges: list[DamagedRange] = []
        """The first of them; `count` is of all."""
        self.count = 0
        self.findings: list[Finding] = []
        self._unreported: list[DamagedRange] = []
        self._seqs: dict[DamageKey, DamagedSeqs] = {}

    def note(self, topic: str, finding: Finding, organisation: int | None = None) -> bool:
        """False when this place is known already."""
        place = DamagedRange(
            topic,
            str(finding.path),
            finding.offset,
            finding.seq,
            finding.end_seq,
            finding.reason,
            finding.mended,
            organisation,
        )
        with self._lock:
            if place in self._known:
                return False
            self.count += 1
            if not place.repaired:
                seqs = self._seqs.setdefault((topic, organisation), DamagedSeqs())
                seqs.add(place.first_seq, place.last_seq + 1)
            if len(self.ranges) < RANGES_MAX:
                self._known.add(place)
                self.ranges.append(place)
                self._unreported.append(place)
                self.findings.append(finding)
            return True

    def forget(self, *topics: str, organisation: int | None = None) -> None:
        """These are gone, and their files with them."""
        gone = {(topic, organisation) for topic in topics}
        with self._lock:
            kept = [
                at
                for at, place in enumerate(self.ranges)
                if (place.topic, place.organisation) not in gone
            ]
            if len(kept) == len(self.ranges) and gone.isdisjoint(self._seqs):
                return
            self.ranges = [self.ranges[at] for at in kept]
            self.findings = [self.findings[at] for at in kept]
            self._known = set(self.ranges)
            for whose in gone:
                self._seqs.pop(whose, None)

    def take_new(self) -> list[DamagedRange]:
        """Those that were found since the last time."""
        if not self._unreported:
            return []
        with self._lock:
            unreported, self._unreported = self._unreported, []
            return unreported

    @property
    def overflowed(self) -> bool:
        """More places were found than are remembered."""
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
