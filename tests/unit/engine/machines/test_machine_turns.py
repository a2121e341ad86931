"""Writes that have to be alone, and what is remembered of those that delete."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from headwater.api.machine_requests import CreateInstance, DeleteInstance, FlushAll
from headwater.engine.machines.tables import Deletions, InstanceDeletion
from headwater.engine.owner import Pending
from headwater.model.machines.errors import MachineError
from headwater.testing import FakeDisk
from tests.rig.machines import ORDER, SteppedStore, new_disk


@pytest.fixture
def disk() -> FakeDisk:
    return new_disk()


@pytest.fixture
def store(disk: FakeDisk) -> SteppedStore:
    made = SteppedStore(disk)
    made.do(lambda: made.put_machine("order", 1, ORDER))
    return made


def code_of(pending: Pending[Any]) -> str | None:
    error = pending.error
    return error.code if isinstance(error, MachineError) else None


def test_a_flush_waits_for_writes_and_writes_behind_it_wait_for_the_flush(
    store: SteppedStore,
) -> None:
    with store.owner.holding():
        first = store.submit(CreateInstance("order", 1, "a"))
        flush = store.submit(FlushAll())
        behind = store.submit(CreateInstance("order", 1, "b"))
        another = store.submit(FlushAll())
        last = store.put_machine("order", 1, ORDER)
        assert not any(each.done for each in (first, flush, behind, another, last))
    assert first.answer().instance_id == "a"
    assert flush.answer().instances_removed == 1
    assert code_of(behind) == "MACHINE_NOT_FOUND"
    assert another.answer().machines_removed == 0
    assert last.answer().created
    assert store.tables.instances == {}
    assert [each.machine for each in store.list_machines()] == ["order"]


def test_events_that_come_while_a_flush_is_under_way_are_answered_after_it(
    store: SteppedStore, disk: FakeDisk
) -> None:
    store.do(lambda: store.create_instance("order", 1, "a", {"total": 5}))
    with store.owner.holding():
        store.submit(CreateInstance("order", 1, "b"))
        flush = store.submit(FlushAll())
        late = store.apply_event("a", "PAY")
    assert flush.answer().instances_removed == 2
    assert code_of(late) == "INSTANCE_NOT_FOUND"
    store.close()
    assert SteppedStore(disk).tables.instances == {}


def test_a_second_delete_tells_of_the_first_also_while_that_is_under_way(
    store: SteppedStore, disk: FakeDisk
) -> None:
    store.do(lambda: store.create_instance("order", 1, "a"))
    again = DeleteInstance("a", again=True)
    with store.owner.holding():
        first, second = store.submit(again), store.submit(again)
    assert (first.answer().applied, second.answer().applied) == (True, False)
    assert first.answer().wal_offset == second.answer().wal_offset
    with pytest.raises(MachineError):
        store.do(partial(store.submit, DeleteInstance("a")))
    with pytest.raises(MachineError):
        store.do(partial(store.submit, again, lambda machine: machine != "order"))
    store.close()
    reopened = SteppedStore(disk)
    assert reopened.do(lambda: reopened.submit(again)).wal_offset == first.answer().wal_offset
    reopened.do(lambda: reopened.create_instance("order", 1, "a"))
    assert reopened.do(lambda: reopened.submit(again)).applied


def test_only_so_many_deletions_are_remembered() -> None:
    kept = Deletions(count_max=2)
    for number in range(3):
        kept.note(str(number), InstanceDeletion(number, "m"))
    assert [kept.get(str(number)) is not None for number in range(3)] == [False, True, True]
    kept.note("1", InstanceDeletion(9, "m"))
    kept.note("3", InstanceDeletion(3, "m"))
    assert (kept.get("1"), kept.get("2")) == (InstanceDeletion(9, "m"), None)
    kept.forget("1")
    assert len(kept) == 1
