"""Tasks that are tried again, late or twice at once: every record is in the topic once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headwater.api.call_list import Records
from headwater.client import Client, NoAnswerError
from headwater.core.errors import (
    InvalidRequestError,
    RowsDifferError,
    UnavailableError,
    WriteUncertainError,
)
from headwater.core.results import Appended
from headwater.spark.sink.chunks import find_marks
from headwater.spark.sink.sender import PATIENCE_US
from tests.unit.spark.sink_rig import (
    QUICK,
    Died,
    DyingClient,
    Rig,
    is_ledger,
    texts_of,
    write_task,
)

ROWS = list(range(95))
HOUR_S = 3_600


def interrupted(rig: Rig, rows: list[int], after: int, *, lost_answer: bool = False) -> None:
    """A task that dies with so many of its chunks written."""
    with DyingClient(rig.url, after, lost_answer=lost_answer) as dying, pytest.raises(Died):
        rig.task(rig.options(), write_task(), rows, client=dying)


def test_the_rows_of_a_task_are_written_in_their_order(rig: Rig) -> None:
    part = rig.task(rig.options(), write_task(), ROWS)
    assert rig.rows() == ROWS
    assert (part.topics["t"].rows, part.topics["t"].chunks_sent) == (95, 10)


def test_chunks_do_not_depend_on_how_rows_are_handed_over(rig: Rig) -> None:
    for portion in (1, 7, 10, 1_000):
        rig.task(rig.options(), write_task(), ROWS, portion)
    assert rig.rows() == ROWS


def test_a_task_without_rows_leaves_no_trace(rig: Rig) -> None:
    assert rig.task(rig.options(), write_task(), []).topics == {}
    assert rig.client.topics() == []


@pytest.mark.parametrize("later_s", [0, HOUR_S])
@pytest.mark.parametrize(("after", "lost_answer"), [(0, False), (0, True), (4, True), (9, False)])
def test_a_task_tried_again_finishes_what_the_first_attempt_began(
    rig: Rig, after: int, lost_answer: bool, later_s: int
) -> None:
    interrupted(rig, ROWS, after, lost_answer=lost_answer)
    rig.server_clock.push(later_s)
    part = rig.task(rig.options(), write_task(), ROWS)
    assert rig.rows() == ROWS
    assert part.topics["t"].chunks_skipped == after + lost_answer


def test_a_slow_task_sees_what_a_copy_of_it_wrote_long_ago(rig: Rig) -> None:
    options = rig.options()
    slow = rig.topic_writer(options, write_task())
    slow.add(texts_of(options, ROWS[:25]))
    rig.task(options, write_task(), ROWS)
    rig.server_clock.push(HOUR_S)
    slow.add(texts_of(options, ROWS[25:]))
    assert slow.finish().chunks_skipped == 8
    assert rig.rows() == ROWS


def test_two_copies_that_take_turns_for_hours_write_every_row_once(rig: Rig) -> None:
    options = rig.options()
    one, other = rig.topic_writer(options, write_task()), rig.topic_writer(options, write_task())
    for at in range(0, 90, 10):
        for copy in (one, other) if at % 20 else (other, one):
            copy.add(texts_of(options, ROWS[at : at + 10]))
            rig.server_clock.push(130)
    for copy in (other, one):
        copy.add(texts_of(options, ROWS[90:]))
        copy.finish()
    assert rig.rows() == ROWS


def test_what_is_written_between_a_look_and_a_chunk_is_answered_by_its_key(rig: Rig) -> None:
    interrupted(rig, ROWS, 2)
    rig.server_clock.push(HOUR_S)
    begun = threading.Event()

    class Overtaken(Client):
        def append(self, topic: str, records: Records, **options: Any) -> Appended:
            if not is_ledger(topic) and not begun.is_set():
                begun.set()
                rig.task(rig.options(), write_task(), ROWS)
            return super().append(topic, records, **options)

    with Overtaken(rig.url, retry=QUICK) as overtaken:
        rig.task(rig.options(), write_task(), ROWS, client=overtaken)
    assert begun.is_set()
    assert rig.rows() == ROWS


def test_an_answer_that_never_comes_is_looked_for_in_the_topic(rig: Rig) -> None:
    rig.client.create("t", idempotency_window_ms=60_000)

    class Mute(Client):
        silent = 2

        def append(self, topic: str, records: Records, **options: Any) -> Appended:
            answer = super().append(topic, records, **options)
            if not is_ledger(topic) and self.silent:
                self.silent -= 1
                rig.server_clock.push(90)  # the key is forgotten
                raise NoAnswerError("the line is dead")
            return answer

    with Mute(rig.url, retry=QUICK) as mute:
        rig.task(rig.options(), write_task(), ROWS, client=mute)
    assert rig.rows() == ROWS


def test_a_server_that_stays_away_fails_the_task_in_the_end(rig: Rig) -> None:
    class Away(Client):
        tries = 0

        def append(self, topic: str, records: Records, **options: Any) -> Appended:
            if is_ledger(topic):
                return super().append(topic, records, **options)
            self.tries += 1
            rig.server_clock.push(PATIENCE_US / 3_000_000)
            raise UnavailableError("come back later")

    away = Away(rig.url, retry=QUICK)
    with away, pytest.raises(UnavailableError):
        rig.task(rig.options(), write_task(), ROWS, client=away)
    assert 3 <= away.tries <= 5


def test_other_rows_under_the_same_key_are_neither_written_nor_taken_for_the_same(
    rig: Rig,
) -> None:
    for later_s in (0, HOUR_S):
        topic = f"t{later_s}"
        options = rig.options(topic=topic)
        rig.task(options, write_task(), ROWS[:30])
        rig.server_clock.push(later_s)
        with pytest.raises(RowsDifferError, match=r"partition 0 of batch 0 .* Run it again"):
            rig.task(options, write_task(), [*ROWS[:20], "other", *ROWS[21:30]])
        assert rig.rows(topic) == ROWS[:30]


def test_a_chunk_may_have_its_rows_in_another_order(rig: Rig) -> None:
    """As they come out of a shuffle: the same rows, and all of them are there."""
    rig.task(rig.options(), write_task(), ROWS[:10])
    assert rig.task(rig.options(), write_task(), ROWS[:10][::-1]).topics["t"].chunks_skipped == 1
    assert rig.rows() == ROWS[:10]


def test_a_cap_that_overtakes_a_retry_stops_it_with_the_range(rig: Rig) -> None:
    rig.client.create("t", cap_records=20)
    interrupted(rig, ROWS, 5)
    with pytest.raises(WriteUncertainError, match=r"record 1 of t .* larger cap"):
        rig.task(rig.options(), write_task(), ROWS)
    rig.server_clock.push(HOUR_S)
    with pytest.raises(WriteUncertainError, match=r"records 1 to 30 of t are gone \(cap\)"):
        rig.task(rig.options(), write_task(), ROWS)
    assert rig.rows() == ROWS[30:50]


def test_records_deleted_before_a_retry_stop_it(rig: Rig) -> None:
    interrupted(rig, ROWS, 5)
    rig.client.delete("t", before_seq=5)
    rig.server_clock.push(HOUR_S)
    with pytest.raises(WriteUncertainError, match="records 1 to 4 of t were deleted"):
        rig.task(rig.options(), write_task(), ROWS)
    assert rig.rows() == ROWS[4:50]


def test_marks_that_were_copied_with_their_records_are_no_marks(rig: Rig) -> None:
    """A router copies meta too, and only some of the records."""
    rig.task(rig.options(), write_task(), ROWS[:40])
    copied = [{"data": "copy", "meta": record.meta} for record in rig.records() if record.meta]
    rig.client.append("u", copied)
    options = rig.options(topic="u")
    with DyingClient(rig.url, 3, lost_answer=False) as dying, pytest.raises(Died):
        rig.task(options, write_task(), ROWS, client=dying)
    rig.server_clock.push(HOUR_S)
    rig.task(options, write_task(), ROWS)
    assert rig.rows("u") == ["copy"] * 4 + ROWS


def test_a_topic_that_forgets_keys_too_soon_is_refused(rig: Rig) -> None:
    rig.client.create("t", idempotency_window_ms=59_999)
    with pytest.raises(InvalidRequestError, match="set its idempotency_window_ms"):
        rig.task(rig.options(), write_task(), ROWS)
    assert rig.rows() == []


def test_a_topic_is_made_with_the_class_that_is_asked_for(rig: Rig) -> None:
    rig.task(rig.options(durability="disk"), write_task(), ROWS)
    assert rig.client.state("t").config["durability"] == "disk"
    with pytest.raises(InvalidRequestError, match="has the durability class disk, not fsync"):
        rig.task(rig.options(durability="fsync"), write_task(batch=1), ROWS)


def test_a_look_jumps_from_mark_to_mark(rig: Rig) -> None:
    options = rig.options(batchRecords="10000")
    for partition in range(5):
        rig.task(options, write_task(partition=partition), list(range(5_000)), 5_000)
    asked: list[int] = []

    class Counted(Client):
        def diff(self, topic: str, from_seq: int = 0, **options: Any) -> Any:
            asked.append(from_seq)
            return super().diff(topic, from_seq, **options)

    with Counted(rig.url) as counted:
        marks = [(seq, mark.partition) for seq, mark in find_marks(counted, "t", 0, "query")]
    assert marks == [(5_000 * at + 1, str(at)) for at in range(5)]
    assert len(asked) == 5
