"""Segments of the machines' log need not be as long as the setting says: it may have been another
one when they were made, and an entry may be longer than it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from headwater.api.machine_requests import ApplyEvent
from headwater.testing import FakeDisk
from tests.rig.machines import ORDER, SMALL, Heard, SteppedStore, new_disk

EVENTS = 60
"""Several segments of the smallest size here."""


def move_often(store: SteppedStore) -> None:
    for _ in range(EVENTS // 4):
        for event in ("PAY", "SHIP", "CLOSE", "AGAIN"):
            store.do(partial(store.apply_event, "a", event, {"pad": "x" * 40}))


@pytest.mark.parametrize(("before", "after"), [(1_024, 8_192), (8_192, 1_024)])
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_segment_made_under_another_length_takes_what_fits_it(
    before: int, after: int, is_killed: bool
) -> None:
    disk = new_disk()
    store = SteppedStore(disk, replace(SMALL, wal_segment_bytes=before))
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "a", {"total": 5}))
    if is_killed:
        disk = disk.after_power_loss()
    else:
        store.close()
    store = SteppedStore(disk, replace(SMALL, wal_segment_bytes=after))
    move_often(store)
    heard = [Heard(ApplyEvent("a", "PAY", {"pad": "x" * 300})) for _ in range(1)]
    assert [getattr(told, "to_state", told) for told in store.gathered(*heard)] == ["paid"]
    state = store.state()
    store.close()
    assert SteppedStore(disk, replace(SMALL, wal_segment_bytes=after)).state() == state


@pytest.mark.parametrize("is_reopened", [True, False])
def test_an_entry_longer_than_a_segment_that_is_empty_gets_one_of_its_own_length(
    is_reopened: bool,
) -> None:
    disk = new_disk()
    settings = replace(SMALL, wal_segment_bytes=128)
    store = SteppedStore(disk, settings)
    if is_reopened:
        store.close()
        store = SteppedStore(disk, settings)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "a", {"total": 5}))
    state = store.state()
    lost = disk.after_power_loss()
    store.close()
    for each in (disk, lost):
        assert isinstance(each, FakeDisk)
        assert SteppedStore(each, settings).state() == state
