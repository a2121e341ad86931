"""A checkpoint lists every segment once, also when one is filled while it is being written."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headwater.disk import read_whole
from headwater.engine.kafka.checkpointer import KafkaCheckpointer
from headwater.format.kafka.checkpoint import KafkaCheckpoint, SegmentMeta, decode_checkpoint
from headwater.format.kafka.names import CHECKPOINT_NAME
from headwater.testing import FakeDisk
from tests.rig.kafka import KAFKA, KafkaLife, batch_of


class Busy:
    """A store that is written to while its checkpoint asks how far the log is."""

    def __init__(self, before: int, after: int) -> None:
        self.life = KafkaLife()
        self.life.create("orders")
        self.before, self.after = before, after
        self.words: list[bytes] = []
        self.fill(1)
        checkpointer = self.life.store._checkpointer
        self._note_synced = checkpointer._note_synced
        checkpointer._note_synced = self.sync

    @property
    def segments(self) -> int:
        return len(self.life.store.core.sealed) + 1

    def fill(self, segments: int) -> None:
        """Write until so many more segments are full."""
        wanted = self.segments + segments
        while self.segments < wanted:
            word = f"{len(self.words)}" * 50
            self.words.append(word.encode())
            self.life.append("orders", batch_of(word))

    def sync(self) -> SegmentMeta:
        self.fill(self.before)
        active = self._note_synced()
        self.fill(self.after)
        return active


@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (2, 2)])
def test_segments_filled_during_a_checkpoint_are_listed_once(before: int, after: int) -> None:
    busy = Busy(before, after)
    known, store = busy.segments, busy.life.store
    settled = store.core.applied_id
    checkpoint = store.checkpoint()
    assert checkpoint == saved(busy.life)
    assert checkpoint.as_of == settled  # the state is older than what was synced
    assert [meta.number for meta in checkpoint.segments] == list(range(known + before))
    for one, next_one in pairwise(checkpoint.segments):
        assert one.base_id + one.entries == next_one.base_id
        assert one == store.core.sealed[one.number]
    assert busy.segments == known + before + after
    disk = busy.life.disk
    assert isinstance(disk, FakeDisk)
    for left in (disk.after_kill(), disk.after_power_loss()):
        again = KafkaLife(left)
        assert again.store.cut is None
        assert again.values("orders") == busy.words


def saved(life: KafkaLife) -> KafkaCheckpoint:
    return decode_checkpoint(read_whole(life.disk, KAFKA / CHECKPOINT_NAME, 2**20))


def test_a_checkpoint_that_cannot_be_written_vouches_for_nothing() -> None:
    told: list[SegmentMeta] = []
    life = KafkaLife()
    life.create("orders")
    disk = life.disk
    assert isinstance(disk, FakeDisk)
    checkpointer = KafkaCheckpointer(life.store.core, life.store._note_synced, told.append)
    disk.capacity_bytes = 0
    with pytest.raises(OSError, match="No space"):
        checkpointer.run()
    assert told == []
    disk.capacity_bytes = None
    checkpointer.run()
    assert told == [saved(life).segments[-1]]
