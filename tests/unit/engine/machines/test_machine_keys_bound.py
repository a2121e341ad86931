"""Idempotency keys take so much memory and no more: the oldest are forgotten, and counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater.model.machines.instance import REMEMBERED_BYTES
from headwater.testing import FakeDisk, ManualClock
from tests.rig.machines import ORDER, SMALL, SteppedStore, new_disk

ROOM_FOR_THREE = 3 * (REMEMBERED_BYTES + 100)
BOUNDED = replace(SMALL, idempotency_bytes_max=ROOM_FOR_THREE)


@pytest.fixture
def disk() -> FakeDisk:
    return new_disk()


@pytest.fixture
def store(disk: FakeDisk) -> SteppedStore:
    made = SteppedStore(disk, BOUNDED, ManualClock())
    made.do(lambda: made.put_machine("order", 1, ORDER))
    made.do(lambda: made.create_instance("order", 1, "a", {"total": 5}))
    return made


def go_round(store: SteppedStore, key: str, **payload: Any) -> bool:
    """One event under this key that always leads somewhere; was it applied?"""
    event = {"new": "PAY", "paid": "CLOSE", "closed": "AGAIN"}[store.get_instance("a").state]
    known = store.tables.keys.get(("apply", "a", key))
    event = event if known is None else known.event
    found = store.do(lambda: store.apply_event("a", event, payload, idempotency_key=key))
    return bool(found.applied)


def keys_of(store: SteppedStore) -> list[str]:
    return [key for _, _, key in store.tables.keys]


def test_beyond_the_bound_the_oldest_keys_are_forgotten_and_counted(store: SteppedStore) -> None:
    assert all(go_round(store, f"k{n}") for n in range(3))
    assert (keys_of(store), store.tables.keys_forgotten) == (["k0", "k1", "k2"], 0)
    assert go_round(store, "k3")
    assert (keys_of(store), store.tables.keys_forgotten) == (["k1", "k2", "k3"], 1)
    assert not go_round(store, "k1")  # a repeat of one that is known
    assert go_round(store, "k0")  # forgotten: a new request
    assert keys_of(store) == ["k2", "k3", "k0"]
    assert store.tables.keys_bytes <= ROOM_FOR_THREE


def test_a_long_context_takes_the_room_of_many_keys_and_the_newest_is_always_kept(
    store: SteppedStore,
) -> None:
    for n in range(3):
        go_round(store, f"k{n}")
    assert go_round(store, "long", x="y" * ROOM_FOR_THREE)
    assert keys_of(store) == ["long"]
    assert not go_round(store, "long")
    assert store.tables.keys_forgotten == 3


def test_what_is_forgotten_by_age_gives_its_room_back_and_is_not_counted(
    store: SteppedStore,
) -> None:
    for n in range(3):
        go_round(store, f"k{n}")
    store.clock.advance(2 * 86_400 * 1_000_000)
    store.maintenance.round()
    assert (keys_of(store), store.tables.keys_bytes, store.tables.keys_forgotten) == ([], 0, 0)


@pytest.mark.parametrize("compacts", [False, True], ids=["from the log", "from a snapshot"])
def test_a_restart_knows_the_keys_that_were_known(
    disk: FakeDisk, store: SteppedStore, compacts: bool
) -> None:
    for n in range(5):
        go_round(store, f"k{n}")
    if compacts:
        store.compact()
    store.close()
    again = SteppedStore(disk, BOUNDED, ManualClock())
    assert keys_of(again) == keys_of(store) == ["k2", "k3", "k4"]
    assert again.tables.keys_bytes == store.tables.keys_bytes
    again.close()
    wider = SteppedStore(disk, SMALL, ManualClock())
    assert set(keys_of(wider)) >= {"k2", "k3", "k4"}
    wider.close()
    narrow = SteppedStore(disk, replace(SMALL, idempotency_bytes_max=1), ManualClock())
    assert keys_of(narrow) == ["k4"]


def test_a_key_that_is_used_again_after_its_time_is_as_old_as_its_second_use(
    disk: FakeDisk, store: SteppedStore
) -> None:
    go_round(store, "again")
    store.clock.advance(2 * 86_400 * 1_000_000)
    store.maintenance.round()
    go_round(store, "between")
    assert go_round(store, "again")
    store.close()
    replayed = SteppedStore(disk, BOUNDED, store.clock)
    assert keys_of(replayed) == ["between", "again"]
    replayed.compact()
    replayed.close()
    assert keys_of(SteppedStore(disk, BOUNDED, store.clock)) == ["between", "again"]


def test_removing_everything_gives_the_room_back(disk: FakeDisk) -> None:
    settings = replace(BOUNDED, allow_flush_all=True)
    store = SteppedStore(disk, settings, ManualClock())
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "a", {"total": 5}, "made"))
    assert store.tables.keys_bytes
    store.do(store.flush_all)
    assert store.tables.keys_bytes == 0
