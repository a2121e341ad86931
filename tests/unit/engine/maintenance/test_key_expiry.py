"""Keys of writes are forgotten when their time is over, also where nobody writes any more."""

from __future__ import annotations

from headwater.engine.state.topic import Topic
from tests.rig.life import Life, new_disk
from tests.rig.scripts import AT_ONCE, records

MINUTE_US = 60_000_000
HOUR_MS = 3_600_000


def pass_minutes(life: Life, minutes: int) -> None:
    for _ in range(minutes):
        life.clock.advance(MINUTE_US)
        life.round()


def topic_of(life: Life) -> Topic:
    return life.db.engine.topic("a")


def test_keys_of_a_topic_that_nobody_writes_to_are_forgotten() -> None:
    life = Life(new_disk(), settings=AT_ONCE)
    for number in range(10):
        life.append("a", records(1), key=f"k{number}")
    life.checkpoint()
    pass_minutes(life, 1)
    assert len(topic_of(life).keys) == 10
    pass_minutes(life, 2)
    assert len(topic_of(life).keys) == 0
    meta = topic_of(life).meta
    assert meta is None or not meta.keys
    assert not life.db.engine.core.keyed
    life.check()


def test_keys_of_an_earlier_life_are_forgotten_too() -> None:
    life = Life(new_disk(), settings=AT_ONCE)
    life.append("a", records(1), key="early")
    life.checkpoint()
    for name in ("b", "c"):
        life.append(name, records(1))
        life.checkpoint()
    life.append("a", records(1), key="late")
    life.close()
    life.reopen()
    assert len(topic_of(life).keys) == 2
    pass_minutes(life, 3)
    assert len(topic_of(life).keys) == 0
    life.append("a", records(1), key="early")
    life.check()


def test_a_key_given_while_the_clock_was_ahead_keeps_no_others_once_it_is_right() -> None:
    life = Life(new_disk(), settings=AT_ONCE)
    life.clock.jump_wall(24 * 365 * HOUR_MS)
    life.append("a", records(1), key="ahead")
    life.clock.jump_wall(-24 * 365 * HOUR_MS)
    for number in range(5):
        life.append("a", records(1), key=f"k{number}")
        life.append("a", records(1), key=f"k{number}")  # is the same write
    pass_minutes(life, 1)
    assert len(topic_of(life).keys) == 6
    pass_minutes(life, 3)
    assert len(topic_of(life).keys) == 0
