"""What a bridge is to copy, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headwater.client.bridge.addresses import Cluster
from headwater.observe.metrics import Sample

POSITIONS_PREFIX: Final = "headwater-bridge."


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    source: Cluster
    dest: Cluster
    topics: tuple[str, ...]
    name: str = "default"
    until_caught_up: bool = False
    skip_lost: bool = False
    settle_s: float = 2.0
    """After a crash: how long the destination must stay as it is before it is counted."""

    @property
    def positions(self) -> str:
        return POSITIONS_PREFIX + self.name


@dataclass(frozen=True, slots=True)
class BridgeProgress:
    copied: int
    lag: int
    """Records of the source that are not acked by the destination yet."""
    lags: dict[str, int] = field(default_factory=dict)

    def samples(self) -> list[Sample]:
        rows = [Sample("bridge_records_copied", self.copied)]
        for name, lag in self.lags.items():
            topic, _, partition = name.rpartition("/")
            rows.append(Sample("bridge_lag", lag, (topic, partition)))
        return rows
