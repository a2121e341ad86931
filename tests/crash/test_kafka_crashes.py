"""Kafka's shared log through crashes: nothing acked is lost, offsets stay dense, nothing returns.

A story is told once on a recording disk. Then the power fails, or the process dies, at its every
disk call; the store is opened on what is left and judged by what had been answered until then.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from headwater.testing import DROPS, KILL, PREFIXES, RANDOM, SECTORS, TORN
from tests.crash.kafka_story import KafkaStory, tell, tell_large, tell_sealing, told
from tests.crash.matrix import slice_of, tried
from tests.rig.kafka import ROOMY_KAFKA, SEALING_KAFKA, TELLING_KAFKA

pytestmark = pytest.mark.crash

PLANS = {
    "kills": KILL,
    "prefixes": PREFIXES,
    "drops": DROPS,
    "torn": replace(TORN, tear_every_byte_max=16),
    "random": replace(RANDOM, random_states=12),
    "sectors": replace(SECTORS, random_states=24),
    "small sectors": replace(SECTORS, random_states=24, sector_bytes=8),
}
EVERY = {"drops": 3, "torn": 6, "random": 4, "sectors": 6, "small sectors": 6}
LONG = {"kafka, ended early": 4}


STORIES = {
    "kafka": (TELLING_KAFKA, tell),
    "kafka, groups of several": (ROOMY_KAFKA, tell_large),
    "kafka, ended early": (SEALING_KAFKA, tell_sealing),
}


@cache
def recorded(name: str) -> KafkaStory:
    return told(*STORIES[name])


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("plan", PLANS)
def test_the_shared_log_keeps_its_promises_whatever_a_crash_leaves(plan: str, name: str) -> None:
    story = recorded(name)
    every = EVERY.get(plan, 1) * LONG.get(name, 1)
    for state in slice_of(story.states(PLANS[plan]), every, always=3):
        story.judge(state)
        tried(f"{name}: {plan}")
