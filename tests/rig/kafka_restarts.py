"""What may lie between two moments of a Kafka store: nothing, a stop, a kill."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.testing import FakeDisk
from tests.rig.kafka import KafkaLife

Restart = Callable[[KafkaLife], KafkaLife]


def stay(life: KafkaLife) -> KafkaLife:
    return life


def stop(life: KafkaLife) -> KafkaLife:
    return life.reopen()


def kill(life: KafkaLife) -> KafkaLife:
    assert isinstance(life.disk, FakeDisk)
    return KafkaLife(life.disk.after_kill(), life.settings, life.clock)


def kill_after_a_checkpoint(life: KafkaLife) -> KafkaLife:
    life.store.checkpoint()
    return kill(life)


RESTARTS = pytest.mark.parametrize("restart", [stay, stop, kill, kill_after_a_checkpoint])
