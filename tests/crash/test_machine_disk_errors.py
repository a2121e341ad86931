"""Errors of the disk at every call of the machines' work (I1, I11, I12).

Whatever fails: nothing acknowledged is lost, nothing refused comes into force while the store runs,
and after a full disk has room again writing resumes by itself.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headwater.api import machine_requests as requests
from headwater.core.errors import HeadwaterError
from headwater.testing import FAILING_VERBS, SPACE_VERBS, FakeDisk, Fault, FaultDisk, Verb
from headwater.wal.committer import LogState
from tests.crash.matrix import slice_of, tried
from tests.rig.machines import ORDER, SteppedStore, new_disk

pytestmark = pytest.mark.crash

Work = Callable[[SteppedStore], Any]


def works() -> list[Work]:
    """Creations, a batch, events, deletions and two compactions, over several segments."""
    found: list[Work] = [lambda store: store.do(lambda: store.put_machine("order", 1, ORDER))]
    for number in range(4):
        name = f"i{number}"
        found += [
            partial(_create, name),
            partial(_apply, name, "PAY"),
            partial(_apply, name, "SHIP"),
        ]
        if number % 2:
            found.append(lambda store: store.compact())
    batch = [requests.CreateInstance("order", instance_id=f"b{n}") for n in range(3)]
    found.append(lambda store: store.do(lambda: store.batch(batch)))
    found.append(lambda store: store.do(lambda: store.delete_instance("b1")))
    return found


def _create(name: str, store: SteppedStore) -> None:
    store.do(lambda: store.create_instance("order", 1, name, {"total": 1}))


def _apply(name: str, event: str, store: SteppedStore) -> None:
    store.do(lambda: store.apply_event(name, event, {"e": event}))


def live(fake: FakeDisk, fault: Fault) -> tuple[SteppedStore, dict[str, Any]]:
    """All of the work with a fault in it: the store, and the last state that was acknowledged."""
    store = SteppedStore(FaultDisk(fake, [fault]))
    acked = store.state()
    for work in works():
        try:
            work(store)
        except (HeadwaterError, OSError):
            assert store.state() == acked, "what was refused came into force"
        acked = store.state()
    return store, acked


def calls(verbs: frozenset[Verb]) -> int:
    disk = FaultDisk(new_disk(), [])
    store = SteppedStore(disk)
    for work in works():
        work(store)
    return len(disk.calls_of(verbs))


@pytest.mark.parametrize("always", [False, True])
def test_an_error_at_any_call_loses_nothing_that_was_acknowledged(always: bool) -> None:
    for nth in slice_of(range(calls(FAILING_VERBS)), 3):
        fake = new_disk()
        fault = Fault(FAILING_VERBS, errno.EIO, nth=nth, always=always, clean_after_error=True)
        try:
            _, acked = live(fake, fault)
        except (HeadwaterError, OSError):
            acked = None  # it did not even open
        for crashed in (fake.after_kill(), fake.after_power_loss()):
            again = SteppedStore(crashed)
            assert not again.report.log.damage, (nth, crashed.label)
            if acked is not None:
                found = {each.id: each for each in again.state()["instances"]}
                for each in acked["instances"]:
                    kept = found.get(each.id)
                    assert kept is None or kept.last_wal_offset >= each.last_wal_offset, nth
                missing = {each.id for each in acked["instances"]} - set(found)
                assert not missing - {"b1"}, (nth, crashed.label)
        tried("machines: an error at every call")


def test_a_disk_that_is_full_for_a_while_costs_only_refusals() -> None:
    for nth in slice_of(range(calls(SPACE_VERBS)), 3):
        fake = new_disk()
        fault = Fault(SPACE_VERBS - {Verb.SYNC_DATA}, errno.ENOSPC, nth=nth, always=True)
        try:
            store, acked = live(fake, fault)
        except (HeadwaterError, OSError):
            continue  # it did not even open
        fault.enabled = False
        store.clock.advance(2_000_000)
        if store.log_state is not LogState.POISONED:
            if acked["machines"]:
                _create("later", store)
            acked = store.state()
        again = SteppedStore(fake.after_power_loss())
        assert again.state() == acked, nth  # poisoned or not: these faults take no bytes
        assert not again.report.log.damage, nth
        tried("machines: a full disk at every call")
