"""Events that come in one turn of the loop: one ticket, and to each what it would get alone."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from headwater.api.machine_requests import ApplyEvent
from headwater.config.machines import FsyncKind, MachineSettings
from headwater.engine.machines.answers import Applied
from headwater.engine.machines.draft import Draft
from headwater.engine.owner import Pending
from headwater.engine.turn import SUBMISSION_BYTES, SUBMISSION_WRITERS
from headwater.model.machines.errors import MachineError
from headwater.testing import FakeDisk, ManualClock
from tests.rig.machines import ORDER, SMALL, Heard, SteppedStore, new_disk, policy

WIDE = replace(SMALL, wal_segment_bytes=1 << 20, zero_chunk_bytes=1 << 16)


def opened(disk: FakeDisk, settings: MachineSettings = WIDE, names: str = "abc") -> SteppedStore:
    store = SteppedStore(disk, settings, ManualClock())
    store.do(lambda: store.put_machine("order", 1, ORDER))
    for name in names:
        store.do(partial(store.create_instance, "order", 1, name, {"total": 5}))
    return store


def tickets(store: SteppedStore) -> list[Any]:
    """Those that are submitted from now on."""
    found: list[Any] = []
    submit = store.shard.submit

    def noted(ticket: Any) -> None:
        submit(ticket)
        found.append(ticket)

    store.shard.submit = noted  # type: ignore[method-assign]
    return found


def one_by_one(store: SteppedStore, asked: list[ApplyEvent]) -> list[Applied | str]:
    """What each is told who asks by himself, all of them in one group of the log."""
    begun: list[Pending[Any] | str] = []
    with store.owner.holding():
        for each in asked:
            try:
                begun.append(store.owner.call(partial(store.submit, each)))
            except MachineError as error:
                begun.append(error.code)
    return [each if isinstance(each, str) else each.answer() for each in begun]


def pay(name: str, **more: Any) -> Heard:
    return Heard(ApplyEvent(name, "PAY", **more))


def test_events_of_one_turn_are_one_ticket_and_each_has_its_own_answer() -> None:
    store = opened(new_disk())
    sent = tickets(store)
    heard = [pay("a", payload={"by": 1}), pay("b", event_id="e"), pay("c")]
    store.gathered(*heard)
    told = [each.answer for each in heard if each.answer is not None]
    assert [(each.instance_id, each.to_state, each.event_id) for each in told] == [
        ("a", "paid", None), ("b", "paid", "e"), ("c", "paid", None),
    ]  # fmt: skip
    assert [(ticket.writers, ticket.frame_count) for ticket in sent] == [(3, 3)]
    for answer in told:
        assert store.get_instance(answer.instance_id).last_wal_offset == answer.wal_offset


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("settings", [SMALL, WIDE], ids=["short segments", "long segments"])
def test_gathered_or_not_the_answers_and_the_bytes_of_the_log_are_the_same(
    settings: MachineSettings, seed: int
) -> None:
    dice = random.Random(seed)
    alone, together = new_disk(), new_disk()
    first, second = opened(alone, settings), opened(together, settings)
    for _ in range(20):
        asked = [
            ApplyEvent(
                dice.choice(["a", "b", "c", "nobody"]),
                dice.choice(["PAY", "SHIP", "CLOSE", "AGAIN"]),
                dice.choice([None, {}, {"x": "y" * dice.randrange(80)}]),
                expected_state=dice.choice([None, None, None, "paid"]),
                idempotency_key=dice.choice([None, None, "k", "l"]),
            )
            for _ in range(dice.randrange(1, 9))
        ]
        told = second.gathered(*[Heard(each) for each in asked])
        assert told == one_by_one(first, asked)
    assert first.state() == second.state()
    assert together.snapshot() == alone.snapshot()
    assert SteppedStore(together.after_kill(), settings).state() == second.state()


def test_what_the_rules_refuse_is_refused_to_whoever_asked_and_to_nobody_else() -> None:
    store = opened(new_disk())
    big = pay("a", payload={"x": "y" * (1 << 20)})
    told = store.gathered(pay("nobody"), big, pay("a"), Heard(ApplyEvent("b", "SHIP")), pay("c"))
    assert [each if isinstance(each, str) else each.to_state for each in told] == [
        "INSTANCE_NOT_FOUND", "BAD_REQUEST", "paid", "INVALID_TRANSITION", "paid",
    ]  # fmt: skip
    assert store.get_instance("a").context == {"total": 5}


def test_an_entry_that_is_too_long_leaves_nothing_behind_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = opened(new_disk())
    monkeypatch.setattr("headwater.engine.machines.draft.PAYLOAD_BYTES_MAX", 400)
    long = pay("a", payload={"x": "y" * 400}, idempotency_key="k")
    told = store.gathered(long, pay("a", idempotency_key="k"))
    assert told[0] == "BAD_REQUEST"
    assert not isinstance(told[1], str)
    assert told[1].applied
    assert store.get_instance("a").context == {"total": 5}


def test_who_may_not_see_a_machine_is_told_so_and_the_next_one_may() -> None:
    store = opened(new_disk())
    told = store.gathered(Heard(ApplyEvent("a", "PAY"), sees=lambda _: False), pay("a"))
    assert told[0] == "INSTANCE_NOT_FOUND"
    assert not isinstance(told[1], str)
    assert told[1].applied


def test_a_repeat_beside_its_first_is_told_the_same_and_writes_nothing() -> None:
    store = opened(new_disk())
    sent = tickets(store)
    one, again = store.gathered(pay("a", idempotency_key="k"), pay("a", idempotency_key="k"))
    assert not isinstance(one, str)
    assert not isinstance(again, str)
    assert (one.applied, again.applied) == (True, False)
    assert one.wal_offset == again.wal_offset
    assert store.gathered(pay("a", idempotency_key="k")) == [again]
    assert [ticket.frame_count for ticket in sent] == [1]


def test_repeats_wait_for_what_they_saw_to_be_committed() -> None:
    store = opened(new_disk())
    first, repeat = pay("a", idempotency_key="k"), pay("a", idempotency_key="k")
    with store.owner.holding():
        store.come(first)
        store.come(repeat)
        assert (first.times, repeat.times) == (0, 0)
    assert not isinstance(repeat.told, str)
    assert not repeat.told.applied


def test_whatever_else_is_asked_goes_behind_what_came_before_it() -> None:
    store = opened(new_disk())
    heard = pay("a", payload={"by": "ann"})
    with store.owner.holding():
        store.owner.postponed = []
        store.submit_event(heard)
        deleted = store.owner.call(lambda: store.delete_instance("a"))
        store.owner.postponed = None
    assert not isinstance(heard.told, str)
    assert heard.told.wal_offset < deleted.answer().wal_offset
    assert "a" not in store.tables.instances


def test_nobody_is_told_before_all_of_a_turn_is_on_its_way() -> None:
    store = opened(new_disk())

    class ComesBack(Heard):
        def fail(self, error: Exception) -> None:
            super().fail(error)
            self.follower = store.apply_event("b", "SHIP")

    back = ComesBack(ApplyEvent("nobody", "PAY"))
    told = store.gathered(back, pay("b"))
    assert told[0] == "INSTANCE_NOT_FOUND"
    assert not isinstance(told[1], str)
    assert back.follower.answer().wal_offset > told[1].wal_offset
    assert store.get_instance("b").state == "shipped"


def test_a_write_that_fails_is_told_to_everyone_and_nothing_of_it_is_kept() -> None:
    disk = new_disk()
    store = opened(disk)
    state = store.state()
    heard = [pay("a"), pay("b"), pay("nobody")]

    def fails(*_: Any, **__: Any) -> int:
        raise OSError(28, "no room")

    write_group = store._log.write_group
    store._log.write_group = fails  # type: ignore[method-assign]
    told = store.gathered(*heard)
    assert told[:2] == [told[0]] * 2
    assert told[2] == "INSTANCE_NOT_FOUND"
    assert isinstance(told[0], str)
    assert store.state() == state
    store._log.write_group = write_group  # type: ignore[method-assign]
    store.clock.advance(5_000_000)
    assert not isinstance(store.gathered(pay("a"))[0], str)


def test_when_the_queue_has_no_room_for_all_those_that_fit_are_taken() -> None:
    store = opened(new_disk(), replace(WIDE, queue_submissions_max=2))
    told = store.gathered(pay("a"), pay("b"), pay("c"))
    assert [isinstance(each, str) for each in told] == [False, False, True]
    assert [store.get_instance(name).state for name in "abc"] == ["paid", "paid", "new"]


def test_a_mistake_of_ours_is_answered_to_everyone_it_met(monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(new_disk())

    def breaks(*_: Any, **__: Any) -> bytes:
        raise ZeroDivisionError("ours")

    with monkeypatch.context() as broken:
        broken.setattr(Draft, "encode", breaks)
        assert store.gathered(pay("a"), pay("nobody"), pay("b")) == ["ours"] * 3
    assert not isinstance(store.gathered(pay("a"))[0], str)


def test_a_turn_of_very_many_or_very_long_events_is_several_tickets() -> None:
    store = opened(new_disk(), replace(WIDE, wal_segment_bytes=16 << 20), "a")
    sent = tickets(store)
    many = [pay("nobody") if n % 2 else pay("a", idempotency_key="k") for n in range(1_300)]
    assert len(store.gathered(*many)) == len(many)
    assert sum(ticket.writers for ticket in sent) <= SUBMISSION_WRITERS
    text = "y" * (SUBMISSION_BYTES // 3)
    events = ["SHIP", "CLOSE", "AGAIN", "PAY"] * 2
    told = store.gathered(*[Heard(ApplyEvent("a", event, {"x": text})) for event in events])
    assert [getattr(each, "applied", each) for each in told] == [True] * 8
    assert max(len(ticket.body) for ticket in sent) < 2 * SUBMISSION_BYTES
    assert len(sent) >= 3


def test_every_n_counts_events_not_tickets() -> None:
    settings = replace(WIDE, fsync_policy=policy(FsyncKind.EVERY_N, 3))
    store = opened(new_disk(), settings, "ab")  # three writes: the last of them is synced
    offset = store._log.synced_offset
    assert offset == store.committed_offset
    store.gathered(pay("a"), pay("b"))
    assert store._log.synced_offset == offset
    store.gathered(Heard(ApplyEvent("a", "SHIP")))
    assert store._log.synced_offset == store.committed_offset


def test_events_over_the_limit_of_every_n_are_synced_before_anybody_is_told() -> None:
    settings = replace(WIDE, fsync_policy=policy(FsyncKind.EVERY_N, 3))
    store = opened(new_disk(), settings, "ab")  # three writes, which are synced
    synced: list[int] = []

    class Looks(Heard):
        def succeed(self, answer: Applied) -> None:
            super().succeed(answer)
            synced.append(store._log.synced_offset)

    store.gathered(*[Looks(ApplyEvent(name, event)) for name in "ab" for event in ("PAY", "SHIP")])
    assert synced == [store.committed_offset] * 4


def test_a_draft_sees_what_is_still_on_its_way_when_a_part_of_it_is_committed() -> None:
    store = opened(new_disk())
    with store.owner.holding():
        store.come(pay("a"))
        store.come(Heard(ApplyEvent("a", "SHIP")))
        first, second = store.shard._groups.drain()
        for ticket in (first, second):
            ticket.resolve()
        store.book.take([first])
        with pytest.raises(MachineError, match="'shipped'"):
            store.apply_event("a", "SHIP")
        store.book.take([second])
    assert store.get_instance("a").state == "shipped"


def test_closing_sends_what_was_gathered() -> None:
    disk = new_disk()
    store = opened(disk)
    heard = pay("a")
    store.owner.postponed = []
    store.submit_event(heard)
    store.owner.postponed = None
    store.close()
    assert not isinstance(heard.told, str)
    assert SteppedStore(disk, WIDE).get_instance("a").state == "paid"
