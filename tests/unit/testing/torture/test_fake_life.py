"""Lives of the engine on the fake disk: they find nothing, are the same each time, and can fail."""

from __future__ import annotations

import pytest

from headwater.core.results import Deleted
from headwater.engine.database import Database
from headwater.testing.torture.fake_life import FakeLife
from headwater.testing.torture.outcome import Tally


def test_lives_of_a_seed_keep_every_promise_and_are_the_same_each_time() -> None:
    first, again = Tally(), Tally()
    for number in range(3):
        assert FakeLife(7, number, first).run() == []
        assert FakeLife(7, number, again).run() == []
    assert first.counts() == again.counts()
    assert first.counts()["lives on the fake disk"] == 3


def test_a_delete_that_is_answered_and_not_done_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(self: Database, topic: str, **_: object) -> Deleted:
        return Deleted(0, 1, 1, 1, 1)

    monkeypatch.setattr(Database, "delete", forgotten)
    found = [each for number in range(6) for each in FakeLife(7, number, Tally()).run()]
    assert found
    assert all(each.promise == "I8" for each in found if "more" not in str(each))
