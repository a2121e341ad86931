"""From segment 8192 on, offsets pass 2^53: everything that takes one takes those, too."""

from __future__ import annotations

import pytest

from headwater.api.machine_requests import watch_filter
from headwater.core.limits import INTEGER_MAX
from headwater.format.machines.names import segment_of
from headwater.recovery.machines import survey
from tests.rig.machines import ORDER, SteppedStore, new_disk


@pytest.mark.claims(72, 73, 74)
def test_a_log_behind_its_8192nd_segment_is_read_watched_and_recovered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(survey, "FIRST_SEGMENT", 9_000)
    disk = new_disk()
    store = SteppedStore(disk)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    made = store.do(lambda: store.create_instance("order", 1, "a", {"total": 5}))
    assert made.wal_offset > INTEGER_MAX
    assert segment_of(made.wal_offset) >= 9_000
    moved = store.do(lambda: store.apply_event("a", "PAY", expected_wal_offset=made.wal_offset))
    (entry,) = store.read_wal(moved.wal_offset, 1).read().entries
    assert entry.offset == moved.wal_offset
    plan = store.watch(watch_filter("a"), moved.wal_offset).catch_up
    assert plan is not None
    assert [each.wal_offset for each in plan.read().events] == [moved.wal_offset]
    store.compact()
    state = store.state()
    store.close()
    store = SteppedStore(disk)
    assert store.state() == state
    assert [each.offset for each in store.history("a").read().entries] == [
        made.wal_offset,
        moved.wal_offset,
    ]
