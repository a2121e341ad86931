"""Batches that are run again from the start: by another driver, cut otherwise, days later."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.api.call_list import Records
from headwater.client import Client
from headwater.core.errors import (
    HeadwaterError,
    RowsDifferError,
    StaleWriterError,
    WriteUncertainError,
)
from headwater.core.results import Appended
from headwater.spark.sink import topic_writer
from headwater.spark.sink.ledger import SinkLedger, ledger_name
from headwater.spark.sink.sender import FENCE_MS
from tests.unit.spark.sink_rig import (
    QUICK,
    Died,
    DyingClient,
    Rig,
    is_ledger,
    text_of,
    texts_of,
    write_task,
)

ROWS = [{"number": number, "kind": number % 3} for number in range(60)] * 2
DAY_S = 86_400


def begun(rig: Rig, run: str, parts: list[list[Any]], written: int) -> None:
    """A run that dies with so many chunks written, over all its partitions."""
    with DyingClient(rig.url, written, lost_answer=False) as dying, suppress(Died):
        for partition, rows in enumerate(parts):
            rig.task(rig.options(), write_task(run, partition=partition), rows, client=dying)
        pytest.fail("it was to die")


def run_whole(rig: Rig, run: str, parts: list[list[Any]], **given: str) -> None:
    options = rig.options(**given)
    done = [
        rig.task(options, write_task(run, partition=partition), rows)
        for partition, rows in enumerate(parts)
    ]
    rig.finish(options, *done)


def cut(rows: list[Any], count: int, seed: int = 0) -> list[list[Any]]:
    """The same rows in other partitions, in another order."""
    rows = random.Random(seed).sample(rows, len(rows))
    return [rows[at::count] for at in range(count)]


def sorted_texts(rows: list[Any]) -> list[str]:
    return sorted(map(text_of, rows))


@pytest.mark.parametrize("written", [0, 1, 5, 11])
@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_a_batch_run_again_in_other_partitions_has_every_row_once(
    rig: Rig, written: int, partitions: int
) -> None:
    begun(rig, "run-1", cut(ROWS, 3), written)
    rig.server_clock.push(DAY_S)
    run_whole(rig, "run-2", cut(ROWS, partitions, seed=1))
    assert sorted_texts(rig.rows()) == sorted_texts(ROWS)


def test_a_run_that_finishes_another_may_die_too(rig: Rig) -> None:
    begun(rig, "run-1", cut(ROWS, 3), 4)
    for number, dies_after in enumerate((0, 1, 2, 0), start=2):
        options = rig.options()
        parts = [
            rig.task(options, write_task(f"run-{number}", partition=at), rows)
            for at, rows in enumerate(cut(ROWS, 2, seed=number))
        ]
        with DyingClient(rig.url, dies_after, lost_answer=number % 2 == 0) as dying:
            rig.client, whole = dying, rig.client
            with pytest.raises(Died):
                rig.finish(options, *parts)
            rig.client = whole
    run_whole(rig, "run-9", cut(ROWS, 4, seed=9))
    assert sorted_texts(rig.rows()) == sorted_texts(ROWS)


def test_tasks_of_the_earlier_run_stop_before_the_later_one_compares(rig: Rig) -> None:
    options = rig.options()
    first = rig.topic_writer(options, write_task("run-1"))
    first.add(texts_of(options, ROWS[:25]))
    part = rig.task(options, write_task("run-2"), ROWS)
    rig.server_clock.push(5)
    with pytest.raises(StaleWriterError, match="by a later run"):
        first.add(texts_of(options, ROWS[25:]))
    with pytest.raises(StaleWriterError, match="by a later run"):
        rig.task(options, write_task("run-1", partition=1), ROWS)
    rig.finish(options, part)
    assert FENCE_MS - 6_000 < rig.clock.waited_us // 1_000 <= FENCE_MS
    assert sorted_texts(rig.rows()) == sorted_texts(ROWS)


def test_rows_with_meta_tag_and_node_are_known_again(rig: Rig) -> None:
    schema = pa.schema([(name, pa.string()) for name in ("data", "tag", "node", "meta")])
    rows = [
        ("1", 'a "quoted" tag', None, None),
        ("[1, 2]", None, "n", '{"k":[1,{"$sink":2}]}'),
        ('"é\\u00e9"', "é", "\t", "{}"),
        (None, None, None, '{"a": "}"}'),
    ]
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    batch = pa.record_batch(columns, schema=schema)
    options = rig.options(schema)
    for run in ("run-1", "run-2"):
        done = [
            topic_writer.write_rows(
                rig.client, options, write_task(run, partition=at), [batch.slice(at)], rig.clock
            )
            for at in range(4)
        ]
        if run == "run-2":
            rig.finish(options, *done)
    assert len(rig.rows()) == 4 + 3 + 2 + 1
    meta = [record.meta for record in rig.records()]
    assert meta[1] == {"k": [1, {"$sink": 2}]}


def test_with_trust_a_run_skips_what_is_there_and_sends_the_rest_itself(rig: Rig) -> None:
    parts = [ROWS[:50], ROWS[50:]]
    begun(rig, "run-1", parts, 7)
    rig.server_clock.push(DAY_S)
    options = rig.options(rerun="trust")
    done = [
        rig.task(options, write_task("run-2", partition=at), rows) for at, rows in enumerate(parts)
    ]
    assert [part.topics["t"].chunks_skipped for part in done] == [5, 2]
    assert [part.topics["t"].staged for part in done] == [None, None]
    assert sorted_texts(rig.rows()) == sorted_texts(ROWS)


def test_trust_that_was_misplaced_is_noticed_and_mended_by_the_next_run(rig: Rig) -> None:
    begun(rig, "run-1", [ROWS], 7)
    with pytest.raises(RowsDifferError):
        rig.task(rig.options(rerun="trust"), write_task("run-2"), ROWS[::-1])
    run_whole(rig, "run-3", [ROWS[::-1]], rerun="trust")
    assert sorted_texts(rig.rows()) == sorted_texts(ROWS)


def test_rows_deleted_meanwhile_are_not_brought_back(rig: Rig) -> None:
    begun(rig, "run-1", [ROWS], 3)
    rig.client.append("t", {"data": "of somebody else", "tag": "x"})
    rig.client.delete("t", match="x")
    with pytest.raises(WriteUncertainError, match="records 31 to 31 of t were deleted"):
        run_whole(rig, "run-2", [ROWS])
    assert rig.rows() == ROWS[:30]


def test_rows_deleted_inside_a_chunk_are_not_brought_back(rig: Rig) -> None:
    schema = pa.schema([("data", pa.string()), ("tag", pa.string())])
    options = rig.options(schema)
    columns = [pa.array(["1", "2", "3"]), pa.array(["a", "b", "c"])]
    batch = pa.record_batch(columns, schema=schema)
    topic_writer.write_rows(rig.client, options, write_task("run-1"), [batch], rig.clock)
    rig.client.delete("t", match="b")
    part = topic_writer.write_rows(rig.client, options, write_task("run-2"), [batch], rig.clock)
    with pytest.raises(WriteUncertainError, match="only 2 are left"):
        rig.finish(options, part)
    assert rig.rows() == [1, 3]


def test_what_is_too_large_to_compare_is_refused_with_the_way_out(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_writer, "STAGED_BYTES_MAX", 1_000)
    begun(rig, "run-1", [ROWS], 3)
    with pytest.raises(HeadwaterError, match=r'option\("rerun", "trust"\)'):
        run_whole(rig, "run-2", [ROWS])


def test_an_app_id_used_with_another_checkpoint_is_refused(rig: Rig) -> None:
    run_whole(rig, "run-1", [ROWS])
    with pytest.raises(StaleWriterError, match="from another checkpoint"):
        rig.task(rig.options(), write_task("run-2", batch=1, query="another"), ROWS)
    assert len(rig.rows()) == len(ROWS)


def test_an_older_copy_of_the_checkpoint_is_refused(rig: Rig) -> None:
    for batch in range(3):
        options = rig.options()
        rig.finish(options, rig.task(options, write_task(f"run-{batch}", batch=batch), ROWS))
    with pytest.raises(StaleWriterError, match="already written batch 2 to t"):
        rig.task(rig.options(), write_task("again", batch=1), ROWS)
    assert len(rig.rows()) == 3 * len(ROWS)


def test_the_ledger_keeps_the_last_batch_only(rig: Rig) -> None:
    for batch in range(5):
        options = rig.options()
        parts = [
            rig.task(options, write_task(f"run-{batch}", batch=batch, partition=at), ROWS)
            for at in range(3)
        ]
        rig.finish(options, *parts)
    entries = SinkLedger(rig.client, "t", "query").entries()
    assert [(entry.batch, entry.partition) for entry in entries] == [(4, "0"), (4, "1"), (4, "2")]
    assert rig.client.state(ledger_name("t")).count == 3


def test_a_batch_write_of_its_own_id_is_made_once_for_ever(rig: Rig) -> None:
    options = rig.options(writeId="query")
    kind = {"is_last": True, "keep_done": True}
    rig.finish(options, rig.task(options, write_task("run-1"), ROWS), **kind)
    rig.server_clock.push(DAY_S)
    rig.finish(options, rig.task(options, write_task("run-2"), ROWS), **kind)
    assert sorted_texts(rig.rows()) == sorted_texts(ROWS)
    assert rig.client.state(ledger_name("t")).count == 1


def test_a_write_without_an_id_leaves_nothing_in_the_ledger(rig: Rig) -> None:
    options = rig.options()
    rig.finish(options, rig.task(options, write_task(), ROWS), is_last=True)
    assert rig.client.state(ledger_name("t")).count == 0


def test_a_chunk_that_is_still_under_way_is_waited_for(rig: Rig) -> None:
    """A write that has its seqs and is not committed cannot be seen, and must be."""
    begun(rig, "run-1", [ROWS], 3)

    class Behind(Client):
        polls = 0

        def state(self, topic: str) -> Any:
            current = super().state(topic)
            if topic == "t":
                self.polls += 1
                if self.polls in (3, 4, 5):  # asked for what is assigned, and for what is seen
                    return msgspec.structs.replace(current, head_seq=current.head_seq - 10)
            return current

        def append(self, topic: str, records: Records, **options: Any) -> Appended:
            assert is_ledger(topic) or self.polls > 5
            return super().append(topic, records, **options)

    with Behind(rig.url, retry=QUICK) as behind:
        rig.client, whole = behind, rig.client
        run_whole(rig, "run-2", [ROWS])
        rig.client = whole
    assert sorted_texts(rig.rows()) == sorted_texts(ROWS)
