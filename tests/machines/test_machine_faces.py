"""The same calls embedded and over HTTP, for threads and for event loops, with the same answers."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.api.machine_requests import ApplyEvent, CreateInstance, DeleteInstance, Moved
from headwater.api.machines import Machines
from headwater.client.calls import RepeatRule
from headwater.client.machine_http import machine_operation
from headwater.client.operations import RetryPolicy, Send
from headwater.client.retry import Retry
from headwater.config.engine import EngineSettings
from headwater.config.wal import WalSettings
from headwater.model.machines.errors import MachineError
from headwater.wire.machine_answers import GapAnswer, TransitionAnswer
from tests.machines.conftest import ORDER
from tests.server.running_server import RunningServer

SMALL = EngineSettings(wal=WalSettings(shards=1, file_bytes=1024 * 1024))


@pytest.fixture(params=["embedded", "over HTTP"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as stack:
        if request.param == "embedded":
            database = stack.enter_context(headwater.open(tmp_path / "data", settings=SMALL))
            yield database.machines
        else:
            server: RunningServer = request.getfixturevalue("server")
            client = stack.enter_context(headwater.Client(f"http://127.0.0.1:{server.port}"))
            yield client.machines


def code_of(call: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(MachineError) as refused:
        call(*arguments, **named)
    return refused.value.code


def test_an_instance_lives_from_creation_to_deletion(machines: Machines, name: str) -> None:
    assert machines.put_machine(name, 1, ORDER).created
    assert not machines.put_machine(name, 1, ORDER).created
    assert machines.get_machine(name).definition["initial"] == "created"
    assert name in [each.machine for each in machines.list_machines().items]
    made = machines.create_instance(name, 1, f"{name}-1", {"amount": 5}, idempotency_key="make")
    assert (made.state, made.applied, made.wal_offset_text) == (
        "created",
        True,
        str(made.wal_offset),
    )
    again = machines.create_instance(name, 1, f"{name}-1", {"amount": 5}, idempotency_key="make")
    assert (again.wal_offset, again.applied) == (made.wal_offset, False)
    moved = machines.apply_event(made.instance_id, "PAY", {"by": "ann"}, event_id="e1")
    assert (moved.from_state, moved.to_state, moved.ctx) == (
        "created",
        "paid",
        {"amount": 5, "by": "ann"},
    )
    found = machines.get_instance(made.instance_id)
    assert (found.state, found.ctx, found.last_event_id) == ("paid", moved.ctx, "e1")
    assert found.last_wal_offset == moved.wal_offset
    listed = machines.list_instances(name, "paid")
    assert ([each.id for each in listed.instances], listed.total) == ([made.instance_id], 1)
    history = machines.history(made.instance_id)
    assert history.complete
    assert [(each.type, each.to_state, each.payload) for each in history.entries] == [
        ("CreateInstance", "created", {"amount": 5}),
        ("ApplyEvent", "paid", {"by": "ann"}),
    ]
    assert machines.delete_instance(made.instance_id).deleted
    assert code_of(machines.get_instance, made.instance_id) == "INSTANCE_NOT_FOUND"


def test_a_refused_event_changes_neither_the_instance_nor_the_log(
    machines: Machines, name: str
) -> None:
    machines.put_machine(name, 1, ORDER)
    instance = machines.create_instance(name, 1, f"{name}-1").instance_id
    before, end = machines.get_instance(instance), machines.wal_stats().current_offset
    assert code_of(machines.apply_event, instance, "PAY") == "GUARD_FAILED"
    assert code_of(machines.apply_event, instance, "SHIP") == "INVALID_TRANSITION"
    assert code_of(machines.apply_event, instance, "PAY", expected_state="paid") == "CONFLICT"
    assert code_of(machines.apply_event, "nobody", "PAY") == "INSTANCE_NOT_FOUND"
    assert code_of(machines.create_instance, name, 1, instance) == "INSTANCE_EXISTS"
    assert code_of(machines.create_instance, name, 7) == "MACHINE_NOT_FOUND"
    other = {**ORDER, "initial": "paid"}
    assert code_of(machines.put_machine, name, 1, other) == "MACHINE_VERSION_EXISTS"
    assert code_of(machines.put_machine, name, 2, {"states": []}) == "BAD_REQUEST"
    after = machines.get_instance(instance)
    before.performance = after.performance
    assert after == before
    assert machines.wal_stats().current_offset == end


def test_batches_are_whole_or_each_for_itself(machines: Machines, name: str) -> None:
    machines.put_machine(name, 1, ORDER)
    made = CreateInstance(name, 1, f"{name}-1", {"amount": 1})
    bad = ApplyEvent(f"{name}-1", "SHIP")
    assert code_of(machines.batch, [made, bad]) == "INVALID_TRANSITION"
    assert code_of(machines.get_instance, f"{name}-1") == "INSTANCE_NOT_FOUND"
    done = machines.batch([made, bad, ApplyEvent(f"{name}-1", "PAY")], mode="best_effort")
    assert [each.status for each in done.results] == ["ok", "error", "ok"]
    assert (done.success_count, done.failure_count) == (2, 1)
    assert done.results[1].error is not None
    assert done.results[1].error["code"] == "INVALID_TRANSITION"
    done = machines.batch([ApplyEvent(f"{name}-1", "SHIP"), DeleteInstance(f"{name}-1")])
    assert [each.status for each in done.results] == ["ok", "ok"]


def test_an_instance_migrates_to_a_newer_version(machines: Machines, name: str) -> None:
    machines.put_machine(name, 1, ORDER)
    newer = {"states": ["new", "done"], "initial": "new", "transitions": []}
    machines.put_machine(name, 2, newer)
    instance = machines.create_instance(name, 1, f"{name}-1").instance_id
    assert code_of(machines.migrate_instance, instance, 2) == "CONFLICT"
    moved = machines.migrate_instance(instance, 2, {"created": "new"})
    assert (moved.version, moved.from_state, moved.to_state) == (2, "created", "new")
    assert machines.get_instance(instance).version == 2


def test_the_log_can_be_read_compacted_and_counted(machines: Machines, name: str) -> None:
    machines.put_machine(name, 1, ORDER)
    made = machines.create_instance(name, 1, f"{name}-1")
    page = machines.read_wal(made.wal_offset, limit=1)
    assert (page.entries[0].type, page.entries[0].data["instance_id"]) == (
        "CreateInstance",
        f"{name}-1",
    )
    # Behind its first byte: the next entry, and nothing is called damaged.
    later = machines.read_wal(made.wal_offset + 1)
    assert made.wal_offset not in [each.offset for each in later.entries]
    assert later.damaged == []
    stats = machines.wal_stats()
    assert stats.entry_count >= 2
    assert stats.io_stats.fsyncs >= 1
    done = machines.compact()
    assert done.snapshot_id.endswith(".snap")
    assert machines.snapshot_instance(f"{name}-1").state == "created"


def test_a_machine_is_drawn_with_its_instance_marked(machines: Machines, name: str) -> None:
    machines.put_machine(name, 1, ORDER)
    instance = machines.create_instance(name, 1, f"{name}-1").instance_id
    assert "class s0 current" in machines.draw(name, instance_id=instance)
    assert 'class="state current"' in machines.draw(name, 1, form="svg", instance_id=instance)
    assert code_of(machines.draw, name, 1, instance_id="nobody") == "INSTANCE_NOT_FOUND"


def test_a_watch_brings_history_and_then_what_happens(machines: Machines, name: str) -> None:
    machines.put_machine(name, 1, ORDER)
    made = machines.create_instance(name, 1, f"{name}-1", {"amount": 1})
    machines.apply_event(made.instance_id, "PAY")
    seen: list[Moved] = []
    two = threading.Event()

    def watch() -> None:
        for moved in machines.watch(machines=[name], from_offset=made.wal_offset, idle_ms=20_000):
            seen.append(moved)
            if len(seen) == 2:
                two.set()
                return

    thread = threading.Thread(target=watch)
    thread.start()
    while not seen and thread.is_alive():
        two.wait(0.01)
    machines.apply_event(made.instance_id, "SHIP", {"by": "sea"})
    thread.join(30)
    assert [(each.event, each.to_state) for each in seen if isinstance(each, TransitionAnswer)] == [
        ("PAY", "paid"),
        ("SHIP", "shipped"),
    ]
    last = seen[1]
    assert isinstance(last, TransitionAnswer)
    assert (last.payload, last.ctx) == ({"by": "sea"}, {"amount": 1, "by": "sea"})


@pytest.mark.parametrize("idle_ms", [0, 1])
def test_a_watch_ends_when_nothing_comes(machines: Machines, idle_ms: int) -> None:
    assert list(machines.watch(machines=["quiet"], idle_ms=idle_ms)) == []


def test_a_watch_from_before_the_log_begins_tells_of_the_gap(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data", settings=SMALL) as database:
        found = list(database.machines.watch(from_offset=5, idle_ms=1))
    assert [type(each) for each in found] == [GapAnswer]


def test_the_awaitable_faces_do_the_same(server: RunningServer, tmp_path: Path) -> None:
    async def run() -> None:
        url = f"http://127.0.0.1:{server.port}"
        async with (
            await headwater.open_async(tmp_path / "data", settings=SMALL) as database,
            headwater.AsyncClient(url) as client,
        ):
            for machines in (database.machines, client.machines):
                await machines.put_machine("twin", 1, ORDER)
                made = await machines.create_instance("twin", 1, None, {"amount": 1})
                moved = await machines.apply_event(made.instance_id, "PAY")
                assert moved.to_state == "paid"
                watched = machines.watch(instance_id=made.instance_id, from_offset=made.wal_offset)
                first = await asyncio.wait_for(anext(aiter(watched)), 20)
                assert isinstance(first, TransitionAnswer)
                assert first.wal_offset == moved.wal_offset

    asyncio.run(run())


def test_every_change_is_sent_with_a_key_so_that_it_can_be_sent_again() -> None:
    policy = RetryPolicy(Retry(), random.Random(7))
    for ask in (CreateInstance("m"), ApplyEvent("i", "GO"), DeleteInstance("i")):
        steps = machine_operation(ask, policy)
        next(steps)
        sent = steps.send(0.0)
        assert isinstance(sent, Send)
        told = {**sent.call.query, **json.loads(sent.call.body or b"{}")}
        assert len(told["idempotency_key"]) == 32
        assert sent.call.repeat is RepeatRule.ALWAYS


def test_machines_are_there_after_a_restart(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data", settings=SMALL) as database:
        database.machines.put_machine("order", 1, ORDER)
        database.machines.create_instance("order", 1, "o-1", {"amount": 1})
        database.machines.apply_event("o-1", "PAY")
    with headwater.open(tmp_path / "data", settings=SMALL) as database:
        assert database.machines.get_instance("o-1").state == "paid"
