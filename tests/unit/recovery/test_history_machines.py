"""What the entries of the machines' log mean, and that everyone who reads the log agrees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

import msgspec
import pytest

from headwater.api.machine_requests import FlushAll
from headwater.core.errors import FormatError
from headwater.format.machines import bodies
from headwater.format.machines.entry import EntryType, decode_entry
from headwater.format.machines.names import global_offset, parse_segment_name
from headwater.model.machines.definition import Definition
from headwater.model.machines.instance import Instance, RememberedAnswer
from headwater.recovery.history.machines import (
    OF_INSTANCES,
    InstanceChains,
    MachineFold,
    MachineSink,
    about,
)
from headwater.spark.jobs.machine_replay import fold as fold_rows
from headwater.testing import FakeDisk
from tests.rig.machines import ORDER, ORDER_2, SteppedStore, new_disk

RAW = msgspec.Raw


@dataclass(slots=True)
class Reader(MachineSink):
    machines: dict[str, dict[int, Definition]] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def made(self, instance: Instance) -> None:
        self.calls.append(("made", instance.id))

    def deleted(self, before: Instance, offset: int, at: int) -> None:
        self.calls.append(("deleted", before.id, offset, at))

    def flushed(self) -> None:
        self.calls.append(("flushed",))

    def remember(self, answer: RememberedAnswer) -> None:
        self.calls.append(("remember", answer))


def folded(*taken: bodies.Body) -> Reader:
    """Entries at the offsets 10, 20, 30, ..."""
    reader = Reader()
    fold = MachineFold(reader.machines, reader.instances, reader)
    for number, body in enumerate(taken, start=1):
        fold.take(bodies.TYPE_OF[type(body)], bodies.encode_body(body), number * 10)
    return reader


def defined(version: int = 1, definition: dict[str, Any] = ORDER) -> bodies.PutMachineEntry:
    return bodies.PutMachineEntry("order", version, RAW(msgspec.json.encode(definition)), "", 1)


def created(name: str = "a", at: int = 2, key: str | None = None) -> bodies.CreateInstanceEntry:
    return bodies.CreateInstanceEntry(
        name, "order", 1, "new", RAW(b'{"total":1}'), at, idempotency_key=key, expires_at=99
    )


def applied(
    previous: int,
    name: str = "a",
    at: int = 3,
    key: str | None = None,
    payload: bytes = b'{"by":2}',
) -> bodies.ApplyEventEntry:
    return bodies.ApplyEventEntry(
        name, "order", 1, "PAY", "new", "paid", at, previous, payload=RAW(b'{"by":2}'),
        event_id="e", idempotency_key=key,
    )  # fmt: skip


def deleted(
    previous: int, name: str = "a", at: int = 4, key: str | None = None
) -> bodies.DeleteInstanceEntry:
    return bodies.DeleteInstanceEntry(name, "order", 1, "paid", at, previous, idempotency_key=key)


def test_every_entry_there_is_has_a_rule() -> None:
    taken: list[bodies.Body] = [
        defined(),
        created(),
        applied(20),
        bodies.SnapshotTaken("s", 10, 3),
        deleted(30),
        bodies.Checkpoint(5),
    ]
    assert {type(body) for body in taken} == set(get_args(bodies.Body))
    assert {bodies.TYPE_OF[type(body)] for body in taken} == set(EntryType)
    reader = folded(*taken)
    assert reader.calls == [("made", "a"), ("deleted", "a", 50, 4)]
    assert list(reader.machines["order"]) == [1]
    assert not reader.instances


def test_an_event_moves_an_instance_and_puts_its_payload_over_the_context() -> None:
    reader = folded(defined(), created(), applied(20))
    assert reader.instances["a"] == Instance(
        "a", "order", 1, "paid", b'{"by":2,"total":1}', 2, 3, 30, "e", 99
    )
    states = reader.machines["order"][1].states
    assert reader.instances["a"].state is states["paid"], "instances share the texts"


@pytest.mark.parametrize(
    ("taken", "context"),
    [
        ((applied(20),), b'{"by":2}'),
        ((created(), applied(15)), b'{"by":2,"total":1}'),
        ((created(), applied(5), applied(20)), b'{"by":2,"total":1}'),
    ],
    ids=["its creation is missing", "the event before is missing", "one before was missing"],
)
def test_an_instance_of_which_entries_are_missing_is_in_doubt(
    taken: tuple[bodies.Body, ...], context: bytes
) -> None:
    instance = folded(*taken).instances["a"]
    assert instance.doubtful
    assert (instance.state, instance.ctx) == ("paid", context)


def test_a_creation_takes_the_place_of_an_instance_whose_delete_is_missing() -> None:
    reader = folded(created(), applied(10), created(at=7))
    assert reader.instances["a"] == Instance(
        "a", "order", 1, "new", b'{"total":1}', 7, 7, 30, None, 99
    )
    assert reader.calls == [("made", "a")], "it was there before"


def test_a_delete_of_what_is_not_there_changes_nothing_and_answers_nobody() -> None:
    reader = folded(deleted(10, key="k"))
    assert (reader.instances, reader.calls) == ({}, [])


def test_only_a_checkpoint_that_says_so_empties_the_tables() -> None:
    kept = folded(defined(), created(), bodies.Checkpoint(5, 10))
    assert (list(kept.machines), list(kept.instances)) == (["order"], ["a"])
    emptied = folded(defined(), created(), bodies.Checkpoint(5, flushed=True), created("b"))
    assert (emptied.machines, list(emptied.instances)) == ({}, ["b"])
    assert emptied.calls == [("made", "a"), ("flushed",), ("made", "b")]


def test_an_entry_under_a_key_gives_the_answer_for_the_next_call_with_it() -> None:
    reader = folded(created(key="c"), applied(10, key="p"), deleted(20, key="d"), created("b"))
    answers = [call[1] for call in reader.calls if call[0] == "remember"]
    assert [(each.full_key, each.wal_offset) for each in answers] == [
        (("create", "order", "c"), 10),
        (("apply", "a", "p"), 20),
        (("delete", "a", "d"), 30),
    ]
    assert [each.instance.state for each in answers] == ["new", "paid", "paid"]


@pytest.mark.parametrize(
    ("kind", "payload", "what"),
    [
        (EntryType.APPLY_EVENT, b"{}", "not that of a APPLY_EVENT"),
        (EntryType.CREATE_INSTANCE, b"\xff", "not that of a CREATE_INSTANCE"),
        (EntryType.PUT_MACHINE, bodies.encode_body(defined(definition={})), "no definition"),
    ],
)
def test_an_entry_that_says_something_else_is_refused(
    kind: EntryType, payload: bytes, what: str
) -> None:
    with pytest.raises(FormatError, match=what):
        MachineFold({}, {}, Reader()).take(kind, payload, 1)


def test_a_sink_that_needs_no_more_than_its_tables_implements_nothing() -> None:
    class Quiet(MachineSink):
        pass

    instances: dict[str, Instance] = {}
    fold = MachineFold({}, instances, Quiet())
    for offset, body in enumerate(
        (created(key="k"), deleted(0), bodies.Checkpoint(1, flushed=True))
    ):
        fold.take(bodies.TYPE_OF[type(body)], bodies.encode_body(body), offset)
    assert not instances


def chained(*taken: tuple[int, bodies.Body]) -> list[str]:
    chains = InstanceChains()
    return [chains.take(body, offset) for offset, body in taken]


def test_entries_that_name_the_one_before_are_a_chain() -> None:
    whole: list[tuple[int, bodies.Body]] = [
        (10, created()),
        (20, applied(10)),
        (30, deleted(20)),
        (40, created()),
        (50, defined()),
    ]
    assert chained(*whole) == [""] * 5
    assert chained((20, applied(10)), (30, applied(20))) == ["", ""], "what came before is unknown"
    assert chained((10, created()), (20, applied(5))) == [
        "",
        "the entry before about the same instance is at 10, and it says 5",
    ]
    assert chained((20, applied(20)))[0], "no entry is its own predecessor"


def test_a_chain_begins_anew_where_entries_may_be_missing_and_where_all_was_removed() -> None:
    assert chained((10, created()), (20, bodies.Checkpoint(1, flushed=True)), (30, applied(5))) == [
        "", "", "",
    ]  # fmt: skip
    chains = InstanceChains()
    chains.take(created(), 10)
    chains.interrupt()
    assert chains.take(applied(5), 30) == ""


def test_entries_about_an_instance_say_first_whose_they_are() -> None:
    for body in (created(), applied(1), deleted(1)):
        assert bodies.TYPE_OF[type(body)] in OF_INSTANCES
        told = about(bodies.encode_body(body))
        assert (told.instance_id, told.at) == ("a", body.at)
    with pytest.raises(FormatError, match="names no instance"):
        about(bodies.encode_body(defined()))


# -- the store that wrote the log, its next start, and Spark


def plain(store: SteppedStore) -> None:
    store.do(partial(store.create_instance, "order", 1, "a", {"total": 1}, "made", 10**9))
    store.do(partial(store.apply_event, "a", "PAY", {"by": 1}, idempotency_key="paid"))
    store.do(partial(store.create_instance, "order", 1, "b"))


def made_again(store: SteppedStore) -> None:
    plain(store)
    store.do(partial(store.delete_instance, "a", "gone"))
    store.do(partial(store.create_instance, "order", 1, "a", {"total": 9}))
    store.do(partial(store.delete_instance, "b"))


def migrated(store: SteppedStore) -> None:
    plain(store)
    store.do(partial(store.put_machine, "order", 2, ORDER_2))
    store.do(partial(store.migrate_instance, "a", 2, {"paid": "settled"}))
    store.do(partial(store.apply_event, "a", "CLOSE"))


def emptied(store: SteppedStore) -> None:
    plain(store)
    store.do(lambda: store.submit(FlushAll()))
    store.do(partial(store.put_machine, "order", 1, ORDER_2))
    store.do(partial(store.create_instance, "order", 1, "b"))


STORIES = [plain, made_again, migrated, emptied]


def rows_of(disk: FakeDisk) -> Iterator[tuple[str, int, int, bytes]]:
    """As the job's shuffle delivers them; behind the last time that all was removed."""
    rows: list[tuple[str, int, int, bytes]] = []
    for path, contents in sorted(disk.files().items()):
        segment, at = parse_segment_name(path.name), 0
        while segment is not None and contents.startswith(b"WLOG", at):
            entry = decode_entry(contents, at, len(contents))
            if entry.kind in OF_INSTANCES:
                name = about(entry.payload).instance_id
                rows.append((name, global_offset(segment, at), int(entry.kind), entry.payload))
            elif b'"flushed":true' in entry.payload:
                rows.clear()
            at += entry.size
    return iter(sorted(rows))


def by_spark(disk: FakeDisk) -> dict[str, tuple[Any, ...]]:
    rows = fold_rows(rows_of(disk), 0)
    return {row[0]: (*row[1:4], row[4].encode(), row[7]) for row in rows if not row[9]}


def by_store(store: SteppedStore) -> dict[str, tuple[Any, ...]]:
    return {
        each.id: (each.machine, each.version, each.state, each.ctx, each.last_wal_offset)
        for each in store.tables.instances.values()
    }


@pytest.mark.parametrize("compacted", [False, True], ids=["log", "snapshot"])
@pytest.mark.parametrize("story", STORIES)
def test_a_start_makes_of_the_log_what_the_store_had_that_wrote_it(
    story: Callable[[SteppedStore], None], compacted: bool
) -> None:
    disk = new_disk()
    store = SteppedStore(disk)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "before"))
    if compacted:
        store.compact()
    story(store)
    again = SteppedStore(FakeDisk(image=disk.snapshot()))
    assert again.state() == store.state()
    for machine, state in ((None, None), ("order", None), (None, "new"), ("order", "paid")):
        listed = again.list_instances(machine, state)
        assert listed == store.list_instances(machine, state), (machine, state)
    for name in ("a", "b", "before"):
        deletion = again.tables.deletions.get(name)
        assert deletion == store.tables.deletions.get(name)
        assert deletion is None or name not in again.tables.instances
    assert again.tables.expired(2**62, 10) == store.tables.expired(2**62, 10)
    assert again.tables.keys_bytes == store.tables.keys_bytes


@pytest.mark.parametrize("story", STORIES)
def test_the_replay_job_makes_the_same_of_the_log(story: Callable[[SteppedStore], None]) -> None:
    disk = new_disk()
    store = SteppedStore(disk)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    story(store)
    assert by_spark(disk) == by_store(store)
