"""What the sweeps crash in the middle of: each script prepares an engine, then does one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from headwater.config.engine import EngineSettings
from headwater.disk import Disk
from headwater.testing import FakeDisk, FaultDisk
from tests.rig.life import SMALL, Life, Moment, new_disk, with_shards

AT_ONCE = replace(SMALL, cold_url=None)
"""Without a cold tier."""


def records(count: int, tag: str | None = None, size: int = 4) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number in range(count):
        record: dict[str, Any] = {"data": {"n": number, "s": "." * size}}
        if tag is not None:
            record["tag"] = tag
        if number % 3 == 1:
            record["node"] = "n1"
        if number % 3 == 2:
            record["meta"] = {"trace": str(number)}
        made.append(record)
    return made


@dataclass(frozen=True)
class Script:
    name: str
    prepare: Callable[[Life], None]
    act: Callable[[Life], None]
    settings: EngineSettings = SMALL

    def prepared(self, wrap: Callable[[FakeDisk], Disk] | None = None) -> Life:
        """A life in which the act is about to happen, on a disk that has everything so far."""
        fake = new_disk()
        disk = fake if wrap is None else wrap(fake)
        life = Life(fake, disk, self.settings)
        self.prepare(life)
        life.check()
        fake.settle()
        life.moments = [Moment(0, life.world.copy())]
        return life

    def recorded(self) -> Life:
        """A life in which the act has happened, with nothing going wrong."""
        life = self.prepared()
        self.act(life)
        life.check()
        return life

    def faulty(self) -> tuple[Life, FaultDisk]:
        """A life on a disk whose calls can be made to fail, none of them counted yet."""
        life = self.prepared(FaultDisk)
        disk = life.disk
        assert isinstance(disk, FaultDisk)
        disk.calls.clear()
        return life, disk


SCRIPTS: Final[dict[str, Script]] = {}


def script(
    prepare: Callable[[Life], None], settings: EngineSettings = SMALL
) -> Callable[[Callable[[Life], None]], Callable[[Life], None]]:
    def enter(act: Callable[[Life], None]) -> Callable[[Life], None]:
        SCRIPTS[act.__name__] = Script(act.__name__, prepare, act, settings)
        return act

    return enter


def some_topics(life: Life) -> None:
    """One topic of each class, with records that are in the log only."""
    life.create("fsync")
    life.create("disk", durability="disk")
    life.create("memory", durability="memory", cap_records=6)
    life.create("ephemeral", durability="ephemeral")
    for name in ("fsync", "disk", "memory", "ephemeral"):
        life.append(name, records(4, "x"))
        life.append(name, records(3), key="k")


def in_segments(life: Life) -> None:
    some_topics(life)
    life.checkpoint()
    life.append("fsync", records(2, "y"))


def mostly_dead(life: Life) -> None:
    in_segments(life)
    life.append("fsync", records(6, "x"))
    life.checkpoint()
    life.delete("fsync", match="x")


def many_files(life: Life) -> None:
    """A log of several files, one snapshot taken."""
    some_topics(life)
    for _ in range(6):
        life.append("fsync", records(5, "x", size=90))
    life.checkpoint()
    for _ in range(6):
        life.append("disk", records(5, size=90))


@script(some_topics)
def writing(life: Life) -> None:
    life.append("fsync", records(3, "y"), key="w")
    life.append_turn({"fsync": records(3, "z")}, {"fsync": ["p", "q", "r"]})
    life.append("disk", records(2))
    life.append("memory", records(2))
    life.append("disk", records(12))
    life.append("fresh", records(2, "y"), key="first")
    life.create("fsync", cap_records=8)
    life.create("disk", durability="fsync")
    life.append("disk", records(1))


@script(some_topics)
def turns_over_many_topics(life: Life) -> None:
    life.create("other")
    life.append_turn({"fsync": records(2, "y"), "other": records(1), "memory": records(1)})
    life.append_turn(
        {"other": records(2), "disk": records(12), "fsync": records(1), "ephemeral": records(2)},
        {"fsync": ["p"], "other": ["q", "r"]},
    )
    life.create("disk", durability="fsync")
    life.append_turn({"disk": records(1), "other": records(1, "z"), "memory": records(2)})


@script(some_topics)
def partial_checkpoint(life: Life) -> None:
    life.absorb()
    life.append("fsync", records(1))


@script(some_topics)
def full_checkpoint(life: Life) -> None:
    life.checkpoint()
    life.append("disk", records(1))


@script(in_segments)
def sealing_by_age(life: Life) -> None:
    life.tick(4_000_000_000)
    life.reclaim()
    life.append("fsync", records(2))
    life.absorb()
    life.checkpoint()


@script(in_segments)
def flags_after_a_delete(life: Life) -> None:
    life.delete("fsync", match="x")
    life.delete("disk", match="x")
    life.checkpoint()
    life.delete("fsync", match="y")
    life.absorb()


@script(in_segments)
def deleting_below(life: Life) -> None:
    life.delete("fsync", before_seq=6)
    life.round()
    life.checkpoint()
    life.reclaim()
    life.delete("fsync", before_seq=100)
    life.checkpoint()
    life.tick(4_000_000_000)
    life.reclaim()


@script(mostly_dead, AT_ONCE)
def rewriting(life: Life) -> None:
    life.checkpoint()
    life.reclaim()
    life.append("fsync", records(1))


@script(mostly_dead)
def relocating(life: Life) -> None:
    life.checkpoint()
    life.reclaim()
    life.reclaim()


@script(many_files)
def snapshot_and_trim(life: Life) -> None:
    life.checkpoint()
    life.append("fsync", records(1))
    life.checkpoint()
    life.append("disk", records(1))


@script(many_files)
def evicting(life: Life) -> None:
    life.create("fsync", cap_records=4)
    life.append("memory", records(5))
    life.round()
    life.append("fsync", records(3))
    life.checkpoint()
    life.reclaim()


@script(in_segments)
def dropping(life: Life) -> None:
    life.drop("fsync")
    life.append("fsync", records(2))
    life.drop("disk")
    life.round()
    life.checkpoint()


@script(in_segments)
def changing_class(life: Life) -> None:
    life.create("fsync", durability="ephemeral")
    life.append("fsync", records(2))
    life.delete("fsync", match="y")
    life.checkpoint()
    life.create("fsync", durability="fsync")
    life.append("fsync", records(1))
    life.absorb()
    life.create("ephemeral", durability="disk")
    life.append("ephemeral", records(1))


@script(many_files)
def closing(life: Life) -> None:
    life.append("fsync", records(1), key="last")
    life.close()
    life.reopen()


@script(many_files)
def resharding(life: Life) -> None:
    for shards in (3, 1):
        life.close()
        life.reopen(with_shards(SMALL, shards))
        for _ in range(3):
            life.append("fsync", records(1))
            life.append("disk", records(1))
            life.checkpoint()
