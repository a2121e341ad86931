"""The registry of retention holds: taken, moved, handed over, released, and told."""

from __future__ import annotations

import pytest

from headwater.engine.state.retention_holds import RetentionHolds
from headwater.model.retention import EVERYTHING, MACHINES_LOG, HoldOwner
from headwater.testing import ManualClock


class Measure:
    """A log that ends at 1,000."""

    def behind_bytes(self, position: int) -> int:
        return 1_000 - position

    def held_bytes(self, position: int) -> int:
        return max(0, 500 - position)


def floor(holds: RetentionHolds) -> int | None:
    return holds.floor(MACHINES_LOG, Measure())


def test_a_restored_hold_is_handed_over_with_its_position() -> None:
    holds = RetentionHolds(ManualClock())
    restored = holds.take("feeder", HoldOwner.TRANSITIONS_TOPIC, 40)
    taken = holds.take("feeder", HoldOwner.TRANSITIONS_TOPIC, 900)
    assert taken is restored
    assert floor(holds) == 40
    assert len(holds) == 1


def test_an_unknown_position_holds_everything_until_its_owner_tells_it() -> None:
    holds = RetentionHolds(ManualClock())
    holds.take("feeder", HoldOwner.TRANSITIONS_TOPIC, None)
    assert floor(holds) == EVERYTHING
    holds.move(holds.take("feeder", HoldOwner.TRANSITIONS_TOPIC, None), 70)
    assert floor(holds) == 70


def test_a_position_never_goes_back_and_tells_since_when_it_stands_still() -> None:
    clock = ManualClock()
    holds = RetentionHolds(clock)
    hold = holds.take("hook", HoldOwner.WEBHOOK, 10)
    clock.advance(5_000_000)
    holds.move(hold, 20)
    clock.advance(5_000_000)
    holds.move(hold, 15)
    (seen,) = holds.of(MACHINES_LOG, Measure())
    assert (seen.position, seen.behind_bytes, seen.held_bytes) == (20, 980, 480)
    assert seen.moved_ms - seen.since_ms == 5_000
    assert clock.wall_ms() - seen.moved_ms == 5_000


def test_a_release_lets_go_and_says_why_once(caplog: pytest.LogCaptureFixture) -> None:
    holds = RetentionHolds(ManualClock())
    hold = holds.take("hook", HoldOwner.WEBHOOK, 10)
    for _ in range(2):
        holds.release(hold, "no such webhook is configured any more")
    assert floor(holds) is None
    (line,) = caplog.messages
    assert "hook" in line
    assert "offset 10" in line
    assert "not configured" not in line
    assert "no such webhook is configured any more" in line
    again = holds.take("hook", HoldOwner.WEBHOOK, 30)
    holds.release(hold, "twice")
    assert floor(holds) == 30, "an old hold takes nothing from a new one of its name"
    assert holds.owned_by(HoldOwner.WEBHOOK) == [again]


def test_a_hold_that_gives_way_is_told_once_and_again_when_it_had_caught_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    holds = RetentionHolds(ManualClock())
    hold = holds.take("hook", HoldOwner.WEBHOOK, 10, bytes_max=500)
    for _ in range(3):
        assert floor(holds) is None
    assert len(caplog.messages) == 1
    holds.move(hold, 600)
    assert floor(holds) == 600
    hold.position = 10
    assert floor(holds) is None
    assert len(caplog.messages) == 2


def test_a_position_that_cannot_be_saved_keeps_the_log(caplog: pytest.LogCaptureFixture) -> None:
    holds = RetentionHolds(ManualClock())
    one = holds.take("one", HoldOwner.WEBHOOK, 10)
    two = holds.take("two", HoldOwner.TRANSITIONS_TOPIC, 20)

    def full() -> None:
        raise OSError(28, "no space left on device")

    one.save = full
    two.save = lambda: holds.move(two, 80)
    holds.save(MACHINES_LOG)
    assert floor(holds) == 10
    assert two.position == 80, "the others are saved all the same"
    assert any("one" in each for each in caplog.messages)
