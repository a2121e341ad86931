"""Watchers of machines: live, from an offset, and too slow."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from headwater.api.machine_requests import WatchFilter, watch_filter
from headwater.config.machines import MachineSettings
from headwater.engine.machines.log_reader import GapReason, LogGap
from headwater.format.machines.names import global_offset
from headwater.model.machines.errors import MachineError
from tests.rig.machines import ORDER, SMALL, SteppedStore, new_disk

ROUND = ("PAY", "SHIP", "CLOSE", "AGAIN")


def begun(settings: MachineSettings = SMALL) -> SteppedStore:
    store = SteppedStore(new_disk(), settings)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "a", {"total": 5}))
    return store


def turn(store: SteppedStore, rounds: int) -> None:
    for _ in range(rounds):
        for event in ROUND:
            store.do(partial(store.apply_event, "a", event))


def test_a_watcher_gets_what_it_asked_for_as_it_is_committed() -> None:
    store = begun()
    news: list[int] = []
    everything = store.watch(WatchFilter())
    everything.on_events = lambda: news.append(1)
    paid = store.watch(watch_filter(events=["PAY"], machines=["order"]))
    closed = store.watch(watch_filter(from_states=["shipped"], to_states=["closed"]))
    other = store.watch(watch_filter(instance_id="b"))
    turn(store, 2)
    events = everything.next().events
    assert [each.event for each in events] == [*ROUND, *ROUND]
    assert len(news) == 1, "told when there was nothing before"
    assert [each.event for each in paid.next().events] == ["PAY", "PAY"]
    assert [each.to_state for each in closed.next().events] == ["closed", "closed"]
    assert not other.next().events
    assert events[-1].ctx == store.get_instance("a").ctx
    everything.close()
    turn(store, 1)
    assert not everything.next().events
    with pytest.raises(MachineError):
        watch_filter(events="PAY")


def test_watching_from_an_offset_replays_and_then_goes_live_without_a_gap() -> None:
    store = begun()
    turn(store, 5)
    middle = store.history("a").read().entries[10].offset
    for start, expected in ((0, 20), (middle, 15)):  # between the two, four more happened
        watcher = store.watch(WatchFilter(), from_offset=start)
        turn(store, 1)
        plan, seen = watcher.catch_up, []
        while plan is not None:
            part = replace(plan, limit=3).read()
            seen += part.events
            plan = part.following
        assert len(seen) == expected
        seen += watcher.next().events
        offsets = [each.wal_offset for each in seen]
        assert offsets == sorted(set(offsets))
        assert len(seen) == expected + 4
        watcher.close()


def test_a_slow_watcher_is_told_exactly_what_it_missed_and_can_read_it() -> None:
    store = begun(replace(SMALL, watch_buffer_events=5))
    watcher = store.watch(WatchFilter())
    turn(store, 3)
    entries = [each.offset for each in store.history("a").read().entries][1:]
    first = watcher.next()
    assert [each.wal_offset for each in first.events] == entries[:5]
    assert first.missed is None
    told = watcher.next()
    assert not told.events
    assert told.missed is not None
    assert (told.missed.first_offset, told.missed.last_offset) == (entries[5], entries[-1])
    assert told.missed.events == 7
    caught = store.catch_up(WatchFilter(), told.missed.first_offset).read()
    assert [each.wal_offset for each in caught.events] == entries[5:]
    turn(store, 1)
    assert len(watcher.next().events) == 4


def test_watching_from_before_the_log_begins_says_what_is_gone() -> None:
    store = begun()
    turn(store, 4)
    store.compact()
    store.compact()
    plan = store.watch(WatchFilter(), from_offset=global_offset(1, 5)).catch_up
    assert plan is not None
    begin = global_offset(store.wal_stats().oldest_segment, 0)
    assert plan.read().gaps == [LogGap(global_offset(1, 5), begin, GapReason.COMPACTED)]
