"""The shared log as its description has it: files, entries, bitmaps, rank and select."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN_CONTEXT as NOWHERE
from opentelemetry.trace import NonRecordingSpan, Span, Tracer, TracerProvider
from pyroaring import BitMap64

from headwater.core.durability import Durability
from headwater.engine.partition import Produced
from headwater.format.kafka.batch import read_header
from headwater.format.kafka.entry import (
    ENTRY_BYTES,
    Entries,
    count_entries,
    keys_of,
    read_entries,
)
from headwater.format.kafka.events import INTERNAL_KEY
from headwater.observe.tracing import Spans
from headwater.testing import FakeDisk, FaultDisk, Verb
from headwater.wal.queue import QueuedGroups
from tests.rig.kafka import KAFKA, LARGE_KAFKA, SMALL_KAFKA, KafkaLife, batch_of


def filled(settings: Any = SMALL_KAFKA, disk: Any = None) -> KafkaLife:
    life = KafkaLife(disk, settings=settings)
    life.create("orders", 2)
    life.create("clicks")
    for number in range(12):
        life.append("orders", batch_of(*(f"o{number}-{at}" for at in range(3))), number % 2)
        life.append("clicks", batch_of(f"c{number}"))
    return life


def indexes(life: KafkaLife) -> dict[int, Entries]:
    """The entries of every index, by number."""
    assert isinstance(life.disk, FakeDisk)
    found = {}
    for path, data in sorted(life.disk.files().items()):
        if path.suffix == ".oidx":
            found[int(path.stem)] = read_entries(data, count_entries(data))
    return dict(sorted(found.items()))


@pytest.mark.claims(4, 6, 7, 9, 10)
def test_every_record_has_one_entry_that_leads_to_its_batch() -> None:
    life = filled()
    assert isinstance(life.disk, FakeDisk)
    files = life.disk.files()
    by_number = indexes(life)
    assert list(by_number) == list(range(len(by_number)))
    assert len(by_number) > 1
    for number, entries in by_number.items():
        log, at = files[KAFKA / f"{number}.log"], 0
        assert len(log) <= SMALL_KAFKA.segment_bytes
        seen = 0
        while seen < len(entries):  # length, batch, length, batch: none spans two files
            size = int.from_bytes(log[at : at + 4], "little")
            records = read_header(log[at + 4 : at + 4 + size]).record_count
            for entry in entries[seen : seen + records]:
                assert (entry["segment_id"], entry["physical_offset"]) == (number, at)
                assert entry["length"] == size
            seen += records
            at += 4 + size
        assert not log[at:].strip(b"\0")


@pytest.mark.claims(22, 23, 25, 28, 29, 34, 35, 39)
def test_offsets_are_ranks_in_a_bitmap_of_global_ids() -> None:
    life = filled()
    every = [key.tobytes() for entries in indexes(life).values() for key in keys_of(entries)]
    for name, index in (("orders", 0), ("orders", 1), ("clicks", 0)):
        partition = life.partition(name, index)
        own = [at for at, key in enumerate(every) if key == partition.entry_key]
        assert isinstance(partition.ids, BitMap64)
        assert list(partition.ids) == own
        assert partition.high_watermark == len(partition.ids)
        for offset, global_id in enumerate(own):
            assert partition.ids.rank(global_id) - 1 == offset
            assert partition.id_at(offset) == global_id
    answer = life.append("clicks", batch_of("one more"))
    assert answer.base_offset == len(life.partition("clicks").ids or ()) - 1
    begun = len(indexes(life)) - 1
    assert every.count(INTERNAL_KEY) == 2 + begun  # two topics were made


@pytest.mark.claims(32, 33)
def test_a_batch_of_many_records_is_one_write_to_each_file() -> None:
    disk = FaultDisk(FakeDisk(["/data"]))
    life = KafkaLife(disk, settings=LARGE_KAFKA)
    life.create("orders")
    life.append("orders", batch_of("warm"))
    before = len(disk.calls_of(Verb.WRITE))
    life.append("orders", batch_of(*map(str, range(5))))
    written = disk.calls_of(Verb.WRITE)[before:]
    assert [call.path.name for call in written] == ["0.log", "0.oidx"]
    assert str(5 * ENTRY_BYTES) in {
        str(int(end) - int(start)) for start, end in [written[1].detail.strip("[]").split(":")]
    }


@pytest.mark.claims(37, 38, 40)
def test_a_fetch_ends_at_the_high_watermark_or_at_its_bytes() -> None:
    for settings in (SMALL_KAFKA, LARGE_KAFKA):
        life = filled(settings)
        one = len(batch_of("c0"))
        plan = life.partition("clicks").plan_fetch(2, one * 4)
        assert plan.high_watermark == 12
        assert [read_header(batch).base_offset for batch in plan.read()] == [2, 3, 4, 5]
        rest = life.fetch("clicks", 9)
        assert [read_header(batch).base_offset for batch in rest] == [9, 10, 11]
        assert len(life.fetch("clicks", 0, 0)) == 1  # one batch at least, so that nobody is stuck


@pytest.mark.parametrize("from_files", [False, True])
def test_a_page_takes_no_more_batches_than_its_records_need(from_files: bool) -> None:
    life = KafkaLife(settings=LARGE_KAFKA)
    life.create("orders")
    for batch in ("a", "b"), ("c",), ("d", "e"), ("f",):
        life.append("orders", batch_of(*batch))
    if from_files:
        life = life.reopen()
    partition = life.partition("orders")
    pages = {(1, 1): [0], (1, 2): [0, 2], (0, 4): [0, 2, 3], (2, 9): [2, 3, 5]}
    for (offset, limit), bases in pages.items():
        plan = partition.plan_fetch(offset, 2**20, limit)
        assert plan.needs_files is from_files
        assert [read_header(batch).base_offset for batch in plan.read()] == bases


def test_a_small_page_is_read_in_passing_however_much_follows() -> None:
    life = KafkaLife(settings=LARGE_KAFKA)
    life.create("orders")
    for _ in range(40):
        life.append("orders", batch_of("x" * 1_000))
    partition = life.partition("orders")
    assert not partition.plan(0, 10, 2**20).waits_for_files
    assert partition.plan(0, 100, 2**20).waits_for_files


@pytest.mark.claims(2, 5, 22, 42, 45)
def test_a_start_after_a_clean_stop_reads_indexes_and_no_log() -> None:
    inner = FakeDisk(["/data"])
    life = filled(disk=inner)
    life.close()
    disk = FaultDisk(inner)
    again = KafkaLife(disk, settings=SMALL_KAFKA)
    looked = disk.calls_of((Verb.READ, Verb.VIEW))
    assert not [call for call in looked if call.path.suffix == ".log"]
    mapped = {call.path.name for call in looked if call.verb is Verb.VIEW}
    assert {name for name in inner.list_directory(KAFKA) if name.endswith(".oidx")} <= mapped
    assert again.values("clicks") == [f"c{n}".encode() for n in range(12)]


@pytest.mark.claims(47)
def test_the_log_is_opened_once_and_shared_by_all_partitions() -> None:
    life = filled()
    assert isinstance(life.disk, FakeDisk)
    open_files = sum(count for count in life.disk.opens.values())
    assert open_files == 2  # the active log and its index


def test_a_weaker_ack_does_not_overtake_a_stronger_one() -> None:
    life = KafkaLife()
    life.create("orders")
    partition = life.partition("orders")
    both = life.owner.call(
        lambda: [
            partition.append(batch_of("first"), Durability.FSYNC),
            partition.append(batch_of("second"), Durability.DISK),
        ]
    )
    assert [pending.answer() for pending in both] == [Produced(0, -1, 0), Produced(1, -1, 0)]
    assert life.values("orders") == [b"first", b"second"]


def test_whoever_waits_is_woken_once_for_news() -> None:
    life = KafkaLife()
    life.create("orders", 2)
    woken: list[int] = []
    life.partition("orders", 0).waiters.add(lambda: woken.append(0))
    life.partition("orders", 1).waiters.add(lambda: woken.append(1))
    life.append("orders", batch_of("a"), 0)
    life.append("orders", batch_of("b"), 0)
    assert woken == [0]


def test_batches_behind_a_refused_one_have_the_offsets_that_are_true() -> None:
    disk = FakeDisk(["/data"])
    life = KafkaLife(disk, settings=LARGE_KAFKA)
    life.create("orders")
    partition = life.partition("orders")
    disk.capacity_bytes = 0
    group = [batch_of("x" * 5_000), batch_of("tiny")]

    def both() -> Any:
        pendings = []
        for batch in group:
            pendings.append(partition.append(batch, Durability.FSYNC))
            life.owner.end_turn()
        assert life.owner.shard is not None
        waiting = life.owner.shard._groups
        assert isinstance(waiting, QueuedGroups)
        taken: list[Any] = []
        waiting.queue.take(taken, 1, 1)  # the first one alone: it finds no room
        life.owner.shard._committer.commit(taken)
        disk.capacity_bytes = None
        life.clock.advance(2_000_000)
        return pendings

    refused, taken = life.owner.call(both)
    assert "no room" in str(refused.error)
    assert taken.answer() == Produced(0, -1, 0)
    for each in (life, KafkaLife(disk.after_kill(), LARGE_KAFKA)):
        assert each.values("orders") == [b"tiny"]


class RecordedSpan(NonRecordingSpan):
    def __init__(self, name: str, facts: Mapping[str, Any]) -> None:
        super().__init__(NOWHERE)
        self.name, self.facts = name, dict(facts)


class Recorder(TracerProvider, Tracer):
    """A tracer that keeps what it is told."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []

    def get_tracer(self, *names: Any, **more: Any) -> Tracer:
        return self

    def start_span(self, name: str, *more: Any, **facts: Any) -> Span:
        self.spans.append(RecordedSpan(name, facts["attributes"]))
        return self.spans[-1]

    start_as_current_span: Any = None  # nobody here uses it


def test_a_tracer_that_is_set_up_later_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    life = KafkaLife()
    life.create("orders")
    recorder = Recorder()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: recorder)
    life.clock.advance(1_000_000)  # now and then somebody looks
    for value in ("a", "b", "c"):  # the first group may go by before that
        life.append("orders", batch_of(value))
    assert [span.name for span in recorder.spans][-2:] == ["headwater.produce.store"] * 2


@pytest.mark.claims(36, 41)
def test_spans_tell_what_was_stored_and_what_was_read() -> None:
    life = KafkaLife()
    life.create("orders")
    recorder = Recorder()
    life.store.core.spans = Spans(recorder)
    life.append("orders", batch_of("a", "b"))
    life.append("orders", batch_of("c"))
    life.fetch("orders", 1)
    key = life.partition("orders").key_text
    assert [(span.name, span.facts) for span in recorder.spans] == [
        (
            "headwater.produce.store",
            {"virtual_topic": key, "record_count": 2, "base_offset": 0},
        ),
        (
            "headwater.produce.store",
            {"virtual_topic": key, "record_count": 1, "base_offset": 2},
        ),
        (
            "headwater.fetch.read",
            {
                "virtual_topic": key,
                "fetch_offset": 1,
                "returned_count": 3,
                "high_watermark": 3,
            },
        ),
    ]
