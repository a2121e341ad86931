"""The store of machines: what each call does, refuses and remembers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from headwater.api import machine_requests as requests
from headwater.api.machine_requests import ApplyEvent, CreateInstance, DeleteInstance
from headwater.core.errors import ClosedError, DirectoryInUseError
from headwater.engine.machines.answers import Applied
from headwater.model.machines.errors import MachineError
from headwater.testing import FakeDisk, ManualClock
from tests.rig.machines import ORDER, ORDER_2, SMALL, SteppedStore, new_disk

DAY_MS = 86_400_000


@pytest.fixture
def disk() -> FakeDisk:
    return new_disk()


@pytest.fixture
def store(disk: FakeDisk) -> SteppedStore:
    made = SteppedStore(disk)
    made.do(lambda: made.put_machine("order", 1, ORDER))
    made.do(lambda: made.create_instance("order", 1, "a", {"total": 5}))
    return made


def as_repeat(first: Applied) -> Applied:
    return msgspec.structs.replace(first, applied=False)


def refused(store: SteppedStore, work: Any) -> MachineError:
    """The error; and neither an instance nor the log changed."""
    state, offset = store.state(), store.committed_offset
    with pytest.raises(MachineError) as caught:
        store.do(work)
    assert (store.state(), store.committed_offset) == (state, offset)
    return caught.value


def test_a_definition_is_put_once_and_never_changes(store: SteppedStore) -> None:
    again = store.do(lambda: store.put_machine("order", 1, ORDER))
    assert not again.created
    assert again.checksum == store.get_machine("order", 1).checksum
    error = refused(store, lambda: store.put_machine("order", 1, ORDER_2))
    assert error.code == "MACHINE_VERSION_EXISTS"
    assert store.do(lambda: store.put_machine("order", 2, ORDER_2)).created
    assert [(each.machine, each.versions) for each in store.list_machines()] == [("order", [1, 2])]
    assert store.get_machine("order").version == 2


def test_the_number_of_versions_can_be_limited(disk: FakeDisk) -> None:
    store = SteppedStore(disk, replace(SMALL, versions_max=1))
    store.do(lambda: store.put_machine("order", 1, ORDER))
    error = refused(store, lambda: store.put_machine("order", 2, ORDER_2))
    assert error.code == "MACHINE_VERSION_LIMIT_EXCEEDED"
    assert not store.do(lambda: store.put_machine("order", 1, ORDER)).created


@pytest.mark.claims(51, 52)
def test_a_change_is_seen_and_answered_only_when_the_log_has_it(store: SteppedStore) -> None:
    with store.owner.holding():
        pending = store.owner.call(lambda: store.apply_event("a", "PAY"))
        assert not pending.done
        assert store.get_instance("a").state == "new"
        behind = store.owner.call(lambda: store.apply_event("a", "SHIP"))
    applied = pending.answer()
    assert (applied.from_state, applied.to_state, applied.applied) == ("new", "paid", True)
    assert behind.answer().to_state == "shipped"
    assert store.get_instance("a").last_wal_offset == behind.answer().wal_offset
    assert behind.answer().wal_offset > applied.wal_offset


@pytest.mark.parametrize(
    ("work", "code"),
    [
        (lambda s: s.create_instance("nobody", 1), "MACHINE_NOT_FOUND"),
        (lambda s: s.create_instance("order", 9), "MACHINE_NOT_FOUND"),
        (lambda s: s.create_instance("order", 1, "a"), "INSTANCE_EXISTS"),
        (lambda s: s.create_instance("order", 1, "b", [1]), "BAD_REQUEST"),
        (lambda s: s.create_instance("order", 1, "b\n"), "BAD_REQUEST"),
        (lambda s: s.create_instance("order", 1, "b", ttl_ms=0), "BAD_REQUEST"),
        (lambda s: s.create_instance("order", "1", "b"), "BAD_REQUEST"),
        (lambda s: s.apply_event("nobody", "PAY"), "INSTANCE_NOT_FOUND"),
        (lambda s: s.apply_event("a", "SHIP"), "INVALID_TRANSITION"),
        (lambda s: s.apply_event("a", "PAY", "text"), "BAD_REQUEST"),
        (lambda s: s.apply_event("a", 3), "BAD_REQUEST"),
        (lambda s: s.apply_event("a", "PAY", expected_state="paid"), "CONFLICT"),
        (lambda s: s.apply_event("a", "PAY", expected_wal_offset=1), "CONFLICT"),
        (lambda s: s.apply_event("a", "PAY", idempotency_key=""), "BAD_REQUEST"),
        (lambda s: s.delete_instance("nobody"), "INSTANCE_NOT_FOUND"),
        (lambda s: s.migrate_instance("a", 1), "CONFLICT"),
        (lambda s: s.migrate_instance("a", 2), "MACHINE_NOT_FOUND"),
        (lambda s: s.put_machine("order", 3, {}), "BAD_REQUEST"),
        (lambda s: s.batch([], "atomic"), "BAD_REQUEST"),
        (lambda s: s.batch([ApplyEvent("a", "PAY")] * 101), "BAD_REQUEST"),
        (lambda s: s.batch([ApplyEvent("a", "PAY")], "sometimes"), "BAD_REQUEST"),
        (lambda s: s.batch([requests.FlushAll()]), "BAD_REQUEST"),
        (lambda s: s.flush_all(), "BAD_REQUEST"),
    ],
)
def test_bad_input_gets_its_code_and_changes_nothing(
    store: SteppedStore, work: Any, code: str
) -> None:
    assert refused(store, lambda: work(store)).code == code


def test_a_guard_sees_the_context_before_the_payload(store: SteppedStore) -> None:
    store.do(lambda: store.create_instance("order", 1, "poor", {"total": 0}))
    error = refused(store, lambda: store.apply_event("poor", "PAY", {"total": 9}))
    assert error.code == "GUARD_FAILED"


def test_expectations_that_hold_let_the_event_through(store: SteppedStore) -> None:
    offset = store.get_instance("a").last_wal_offset
    answer = store.do(
        lambda: store.apply_event(
            "a", "PAY", {"by": "card"}, expected_state="new", expected_wal_offset=offset,
            event_id="e-1",
        )
    )  # fmt: skip
    assert answer.context == {"total": 5, "by": "card"}
    assert answer.event_id == "e-1"
    assert store.get_instance("a").last_event_id == "e-1"


def test_a_repeat_under_a_key_answers_as_the_first_time(store: SteppedStore) -> None:
    pay = partial(store.apply_event, "a", "PAY", {"by": 1}, idempotency_key="k")
    first = store.do(pay)
    store.do(lambda: store.apply_event("a", "SHIP", {"by": 2}))
    again = store.do(pay)
    assert again == msgspec.structs.replace(first, applied=False)
    made = partial(store.create_instance, "order", 1, None, {}, "k")
    first_made = store.do(made)
    assert store.do(made) == first_made._replace(applied=False)
    gone = partial(store.delete_instance, "a", "k")
    first_gone = store.do(gone)
    assert store.do(gone) == first_gone._replace(applied=False)
    assert store.do(pay) == as_repeat(first), "also when the instance is gone"


def test_a_repeat_waits_for_the_first_when_that_is_still_on_its_way(store: SteppedStore) -> None:
    pay = partial(store.apply_event, "a", "PAY", idempotency_key="k")
    with store.owner.holding():
        first, again = store.owner.call(pay), store.owner.call(pay)
        assert not again.done
    assert again.answer() == as_repeat(first.answer())


def test_a_key_used_for_something_else_is_a_conflict(store: SteppedStore) -> None:
    store.do(lambda: store.apply_event("a", "PAY", idempotency_key="k"))
    error = refused(store, lambda: store.apply_event("a", "SHIP", idempotency_key="k"))
    assert error.code == "CONFLICT"


def test_keys_survive_restarts_and_compaction_for_a_day(disk: FakeDisk) -> None:
    clock = ManualClock()
    store = SteppedStore(disk, clock=clock)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    make = ("order", 1, "a", {"total": 5}, "made")
    first = store.do(lambda: store.create_instance(*make))
    paid = store.do(lambda: store.apply_event("a", "PAY", {"x": 1}, idempotency_key="paid"))
    store.close()
    store = SteppedStore(disk, clock=clock)
    assert store.do(lambda: store.create_instance(*make)) == first._replace(applied=False)
    store.compact()
    store.close()
    store = SteppedStore(disk, clock=clock)
    again = store.do(lambda: store.apply_event("a", "PAY", {"x": 1}, idempotency_key="paid"))
    assert again == as_repeat(paid)
    clock.advance((DAY_MS + 1) * 1_000)
    store.maintenance.round()
    assert not store.tables.keys
    error = refused(store, lambda: store.apply_event("a", "PAY", {"x": 1}, idempotency_key="paid"))
    assert error.code == "INVALID_TRANSITION", "the key is forgotten, so it is a new event"


def test_a_deleted_instance_is_gone_and_its_id_may_be_used_again(store: SteppedStore) -> None:
    store.do(lambda: store.delete_instance("a"))
    with pytest.raises(MachineError, match="no instance"):
        store.get_instance("a")
    assert refused(store, lambda: store.apply_event("a", "PAY")).code == "INSTANCE_NOT_FOUND"
    store.do(lambda: store.create_instance("order", 1, "a", {"total": 1}))
    assert store.get_instance("a").context == {"total": 1}


def test_ids_of_deleted_instances_can_be_kept_for_ever(disk: FakeDisk) -> None:
    settings = replace(SMALL, ids_may_be_reused=False)
    store = SteppedStore(disk, settings)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "a"))
    store.do(lambda: store.delete_instance("a"))
    store.compact()
    store.close()
    store = SteppedStore(disk, settings)
    error = refused(store, lambda: store.create_instance("order", 1, "a"))
    assert error.code == "INSTANCE_EXISTS"
    store.close()
    store = SteppedStore(disk, SMALL)
    assert store.do(lambda: store.create_instance("order", 1, "a")).applied, "allowed again"


def test_an_id_kept_for_ever_is_kept_from_the_moment_it_was_given(disk: FakeDisk) -> None:
    clock = ManualClock()
    store = SteppedStore(disk, replace(SMALL, ids_may_be_reused=False), clock)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    for name in ("batch", "on its way", "expired"):
        store.do(partial(store.create_instance, "order", 1, name, None, None, 1_000))

    def at_once() -> Any:
        store.delete_instance("on its way")
        return store.create_instance("order", 1, "on its way")

    both: list[requests.Request] = [
        DeleteInstance("batch"),
        CreateInstance("order", 1, "batch"),
    ]
    assert refused(store, lambda: store.batch(both)).code == "INSTANCE_EXISTS"
    with pytest.raises(MachineError, match="already, or was before"):
        store.do(at_once)
    clock.advance(2_000_000)
    again = partial(store.create_instance, "order", 1, "expired")
    assert refused(store, again).code == "INSTANCE_EXISTS", "though nobody came to delete it yet"
    store.maintenance.round()
    assert refused(store, again).code == "INSTANCE_EXISTS"


def test_an_instance_with_a_ttl_deletes_itself(disk: FakeDisk) -> None:
    clock = ManualClock()
    store = SteppedStore(disk, clock=clock)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "short", {"total": 1}, None, 1_000))
    store.do(lambda: store.apply_event("short", "PAY"))
    clock.advance(999_000)
    assert store.get_instance("short").state == "paid"
    clock.advance(1_000)
    assert refused(store, lambda: store.apply_event("short", "SHIP")).code == "INSTANCE_NOT_FOUND"
    with pytest.raises(MachineError):
        store.get_instance("short")
    store.maintenance.round()
    assert store.list_instances().total == 0
    store.do(lambda: store.create_instance("order", 1, "short", None, None, 5_000))
    clock.advance(6_000_000)
    store.do(lambda: store.create_instance("order", 1, "short"))
    store.maintenance.round()
    assert store.get_instance("short").expires_at == 0
    state = store.state()
    store.close()
    assert SteppedStore(disk, clock=clock).state() == state


def test_a_leap_of_the_wall_clock_expires_nothing_at_once(disk: FakeDisk) -> None:
    clock = ManualClock()
    store = SteppedStore(disk, clock=clock)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "a", {}, None, DAY_MS))
    clock.jump_wall(10 * 365 * DAY_MS)
    store.maintenance.round()
    assert store.get_instance("a").state == "new"


def test_a_migrated_instance_goes_on_in_the_newer_version(store: SteppedStore) -> None:
    store.do(lambda: store.put_machine("order", 2, ORDER_2))
    store.do(lambda: store.apply_event("a", "PAY"))
    assert refused(store, lambda: store.migrate_instance("a", 2)).code == "CONFLICT"
    odd: Any = {"paid": ["settled"]}
    assert refused(store, lambda: store.migrate_instance("a", 2, odd)).code == "BAD_REQUEST"
    answer = store.do(lambda: store.migrate_instance("a", 2, {"paid": "settled"}))
    assert (answer.from_state, answer.to_state, answer.version) == ("paid", "settled", 2)
    assert store.do(lambda: store.apply_event("a", "CLOSE")).to_state == "closed"
    entries = store.history("a").read().entries
    assert [getattr(each.body, "event", None) for each in entries] == [
        None, "PAY", "$migrate", "CLOSE"
    ]  # fmt: skip


def test_an_atomic_batch_is_all_or_nothing(store: SteppedStore) -> None:
    batch: list[requests.Request] = [
        CreateInstance("order", instance_id="b"),
        ApplyEvent("a", "SHIP"),
    ]
    error = refused(store, lambda: store.batch(batch))
    assert (error.code, error.details["operation"]) == ("INVALID_TRANSITION", 1)
    batch = [
        CreateInstance("order", instance_id="b", context={"total": 1}),
        ApplyEvent("b", "PAY"),
        ApplyEvent("a", "PAY"),
        DeleteInstance("a"),
    ]
    syncs = store.wal_stats().fsyncs
    done = store.do(lambda: store.batch(batch))
    assert len(done.outcomes) == 4
    assert store.wal_stats().fsyncs == syncs + 1
    assert list(store.tables.instances) == ["b"]
    assert store.get_instance("b").state == "paid"


def test_a_best_effort_batch_goes_on_after_a_refusal(store: SteppedStore) -> None:
    batch = [ApplyEvent("a", "SHIP"), ApplyEvent("a", "PAY"), ApplyEvent("a", "SHIP")]
    done = store.do(lambda: store.batch(batch, "best_effort"))
    codes = [each.error.code if each.error else None for each in done.outcomes]
    assert codes == ["INVALID_TRANSITION", None, None]
    assert store.get_instance("a").state == "shipped"


def test_lists_are_by_id_filtered_and_paged(store: SteppedStore) -> None:
    for number in range(30):
        name = f"n{number * 7 % 30:02d}"
        store.do(partial(store.create_instance, "order", 1, name, {"total": 1}))
    for number in range(0, 30, 3):
        store.do(partial(store.apply_event, f"n{number:02d}", "PAY"))
    page = store.list_instances("order", "paid", limit=4, offset=4)
    assert [each.id for each in page.instances] == ["n12", "n15", "n18", "n21"]
    assert (page.total, page.has_more) == (10, True)
    assert [each.id for each in store.list_instances(state="paid", limit=2).instances] == [
        "n00", "n03"
    ]  # fmt: skip
    everything = store.list_instances()
    assert (everything.total, everything.has_more) == (31, False)
    assert [each.id for each in everything.instances] == sorted(store.tables.instances)
    assert store.list_instances("nobody").total == 0
    assert store.list_instances("order", "closed").total == 0
    with pytest.raises(MachineError):
        store.list_instances(limit=0)


def test_flushing_removes_everything_when_it_is_allowed(disk: FakeDisk) -> None:
    store = SteppedStore(disk, replace(SMALL, allow_flush_all=True))
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "a"))
    done = store.do(store.flush_all)
    assert (done.instances_removed, done.machines_removed) == (1, 1)
    store.close()
    again = SteppedStore(disk, SMALL)
    assert not again.tables.instances
    assert not again.tables.machines


@pytest.mark.claims(112)
def test_a_directory_of_machines_has_one_owner_at_a_time(
    disk: FakeDisk, store: SteppedStore
) -> None:
    with pytest.raises(DirectoryInUseError):
        SteppedStore(disk)
    store.close()
    SteppedStore(disk).close()


def test_a_closed_store_refuses_and_is_closed_twice_in_peace(store: SteppedStore) -> None:
    store.close()
    store.close()
    with pytest.raises(ClosedError):
        store.apply_event("a", "PAY")


def test_a_request_of_each_kind_can_be_part_of_a_batch(store: SteppedStore) -> None:
    batch: list[requests.Request] = [
        requests.PutMachine("order", 2, ORDER_2),
        CreateInstance("order", instance_id="new"),
        requests.MigrateInstance("a", 2),
    ]
    outcomes = store.do(lambda: store.batch(batch)).outcomes
    assert outcomes[1].answer.version == 2
    assert store.get_instance("a").version == 2
