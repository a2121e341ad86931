"""Deletes and the rewriting of segments, whichever comes first."""

from __future__ import annotations

from headwater.engine.read_only.directory_check import verify_directory
from tests.rig.life import DATA, Life, new_disk
from tests.rig.scripts import AT_ONCE, records


def faults(life: Life) -> list[str]:
    report = verify_directory(life.fake, DATA, life.clock, lambda _: lambda _: None, deep=True)
    return [fault.what for fault in report.bad]


def test_a_record_that_was_deleted_and_rewritten_before_a_checkpoint_is_sound_after_it() -> None:
    life = Life(new_disk(), settings=AT_ONCE)
    life.append("a", [*records(1), *records(2, "x", size=90), *records(2, "y", size=90)])
    life.append("a", records(1))
    life.checkpoint()
    life.delete("a", match="x")
    life.checkpoint()
    life.delete("a", match="y")  # its bytes go before the files were told that it is deleted
    before = life.db.engine.topic("a").segments[0].data_bytes
    life.reclaim()
    assert life.db.engine.topic("a").segments[0].data_bytes < before
    assert not faults(life)
    life.checkpoint()
    assert not faults(life)
    life.check()
    life.close()
    life.reopen()
    assert not faults(life)
