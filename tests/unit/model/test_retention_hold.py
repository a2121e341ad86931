"""What may be deleted of a log, by who still needs it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.model.retention import (
    EVERYTHING,
    MACHINES_LOG,
    HoldOwner,
    RetentionHold,
    retention_floor,
)

HOLD = RetentionHold(
    "one", "one", HoldOwner.WEBHOOK, MACHINES_LOG, 100, 50, 0, 0, 0, durable=True, bytes_max=60
)


def test_nobody_who_holds_anything_lets_everything_go() -> None:
    assert retention_floor([]) is None


def test_the_one_furthest_behind_tells_what_may_go() -> None:
    assert retention_floor([HOLD, replace(HOLD, position=70), replace(HOLD, position=90)]) == 70


def test_a_position_that_is_not_known_holds_everything() -> None:
    unknown = replace(HOLD, position=None, behind_bytes=None)
    assert retention_floor([HOLD, unknown]) == EVERYTHING
    assert not unknown.gives_way


@pytest.mark.parametrize(("behind", "gives_way"), [(60, False), (61, True)])
def test_a_hold_gives_way_only_beyond_its_limit(behind: int, gives_way: bool) -> None:
    far = replace(HOLD, position=10, behind_bytes=behind)
    assert far.gives_way is gives_way
    assert retention_floor([HOLD, far]) == (100 if gives_way else 10)
    assert retention_floor([replace(far, bytes_max=None)]) == 10
