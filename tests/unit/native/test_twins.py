"""Every compiled function gives what its pure twin gives, and refuses what that refuses."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import FormatError
from headwater.core.limits import BATCH_RECORDS_MAX, PARTITION_NAME_PATTERN
from headwater.format import appends
from headwater.format.frame import decode_frame
from headwater.format.segment import frame, run
from headwater.native import MODULES, PURE_VARIABLE, compiled, missing
from headwater.wire import answers
from headwater.wire.http_response import SHORT_HEAD
from tests.unit.native.twins import is_compiled, pure

parts = st.tuples(
    st.integers(0, 2**63 - 1),
    st.integers(0, 15),
    st.binary(max_size=40),
    st.binary(max_size=40),
    st.binary(max_size=600),
)


def test_continuous_integration_has_all_of_it_compiled() -> None:
    if os.environ.get("CI") and not os.environ.get(PURE_VARIABLE):
        assert missing() == []


def test_a_variable_asks_for_the_pure_code() -> None:
    program = "from headwater.native import missing; print(*missing())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, PURE_VARIABLE: "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == list(MODULES)


def test_everything_that_can_be_compiled_is_known_by_name() -> None:
    sources = Path(__file__).parents[3].glob("src/headwater/native/*.pyx")
    assert sorted(source.stem for source in sources) == sorted(MODULES)


def test_a_module_that_was_not_compiled_is_none() -> None:
    assert compiled("no_such_module") is None


@is_compiled
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**62), st.lists(parts, min_size=1, max_size=20))
def test_appends_are_the_same_bytes(topic_id: int, first_seq: int, rows: list[Any]) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    times, flags, nodes, tags, datas = columns
    given_all = (topic_id, first_seq, times, flags, nodes, tags, datas)
    found = appends.encode_appends(*given_all)
    assert found == pure(appends.encode_appends, appends, *given_all)
    frame = decode_frame(memoryview(found.buffer), found.offsets[-1], len(found.buffer))
    assert frame.seq == first_seq + len(rows) - 1


@is_compiled
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1), st.integers(0, 2**62), st.integers(0, 15), st.lists(parts)
        ),
        max_size=8,
    )
)
def test_batches_of_many_topics_are_the_same_bytes(batches: list[Any]) -> None:
    columns: list[Any] = [
        (topic_id, seq, topic_id, flags_of_all, *([row[n] for row in rows] for n in range(1, 5)))
        for topic_id, seq, flags_of_all, rows in batches
    ]
    found = appends.encode_batches(columns)
    assert [tuple(each) for each in found] == pure(appends.encode_batches, appends, columns)
    for each, (topic_id, first_seq, flags_of_all, rows) in zip(found, batches, strict=True):
        buffer, offsets, lengths, flags = each
        for at, offset in enumerate(offsets):
            frame = decode_frame(memoryview(buffer), offset, len(buffer))
            assert (frame.topic_id, frame.seq) == (topic_id, first_seq + at)
            assert flags[at] == flags_of_all | rows[at][1]
        ends = [*offsets, len(buffer)][1:]
        sizes = [end - offset for offset, end in zip(offsets, ends, strict=True)]
        assert lengths == [size + appends.SEGMENT_SHIFT for size in sizes]


@is_compiled
@pytest.mark.parametrize(
    ("times", "flags", "node"),
    [([-1], [0], b""), ([2**64], [0], b""), ([0], [256], b""), ([0], [0], bytes(65_536))],
)
def test_what_does_not_fit_a_frame_is_refused_by_both(
    times: list[int], flags: list[int], node: bytes
) -> None:
    for native in (appends._native, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(appends, "_native", native)
            with pytest.raises(Exception) as raised:  # noqa: PT011 - each has its own
                appends.encode_appends(1, 1, times, flags, [node], [b""], [b"1"])
            assert not isinstance(raised.value, FormatError | AssertionError)


@is_compiled
@given(st.binary(max_size=2_000), st.lists(st.tuples(st.integers(0), st.integers(0)), max_size=400))
def test_checksums_of_ranges_are_the_same(data: bytes, cuts: list[tuple[int, int]]) -> None:
    ranges = [sorted((a % (len(data) + 1), b % (len(data) + 1))) for a, b in cuts]
    starts = numpy.array([low for low, _ in ranges], numpy.int64)
    ends = numpy.array([high for _, high in ranges], numpy.int64)
    found = run.hash_ranges(memoryview(data), starts, ends)
    assert found.tolist() == pure(run.hash_ranges, run, memoryview(data), starts, ends).tolist()


@is_compiled
@given(st.lists(st.binary(max_size=300), max_size=30), st.binary(max_size=20))
def test_a_run_is_copied_to_the_same_bytes(datas: list[bytes], before: bytes) -> None:
    ends = numpy.cumsum([len(data) for data in datas], dtype=numpy.int64)
    starts = ends - numpy.array([len(data) for data in datas], numpy.int64)
    alive = numpy.zeros(len(datas), numpy.bool_)

    def copied() -> bytearray:
        target = bytearray(before)
        run._copy(target, memoryview(b"".join(datas)), starts, ends, alive)
        return target

    assert copied() == pure(copied, run) == before + b"".join(datas)


@is_compiled
@pytest.mark.parametrize(("start", "end", "room"), [(-1, 2, 3), (2, 1, 0), (0, 11, 11), (0, 5, 4)])
def test_a_copy_from_outside_or_into_other_room_is_refused(start: int, end: int, room: int) -> None:
    native = compiled("frames")
    assert native is not None
    with pytest.raises(ValueError, match="bytes"):
        native.copy_ranges(bytes(10), numpy.array([start]), numpy.array([end]), bytearray(room))


@is_compiled
@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 1), (0, 11), (11, 12)])
def test_a_range_outside_of_the_bytes_is_refused(start: int, end: int) -> None:
    starts, ends = numpy.array([start]), numpy.array([end])
    with pytest.raises(ValueError, match="no bytes"):
        run.hash_ranges(memoryview(bytes(10)), starts, ends)


@is_compiled
@given(
    st.lists(
        st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)),
        min_size=2,
        max_size=50,
    )
)
def test_index_entries_are_the_same_bytes(rows: list[tuple[int, int, int]]) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    lengths, times, flags = columns

    found = frame.pack_entries(lengths, times, flags)
    assert bytes(found) == bytes(pure(frame.pack_entries, frame, lengths, times, flags))


numbers = st.integers(0, 2**63 - 1)
OPENING = answers.write_opening("orders")


@is_compiled
@given(
    st.binary(max_size=40),
    st.binary(max_size=320),
    st.tuples(numbers, st.integers(0, 2**62), st.integers(1, 300), *[numbers] * 4),
)
def test_the_answer_to_a_write_is_the_same_bytes(
    prefix: bytes, opening: bytes, told: tuple[int, int, int, int, int, int, int]
) -> None:
    found = answers.write_reply(prefix, opening, *told)
    assert found == pure(answers.write_reply, answers, prefix, opening, *told)


@is_compiled
@pytest.mark.parametrize(("prefix", "opening"), [(1_000, 0), (0, 321)])
def test_a_prefix_or_a_topic_that_is_too_long_for_an_answer_is_refused(
    prefix: int, opening: int
) -> None:
    with pytest.raises(ValueError, match="shorter"):
        answers.write_reply(bytes(prefix), bytes(opening), 0, 0, 1, 0, 0, 0, 0)


def test_the_longest_name_there_is_fits_into_an_answer() -> None:
    name = f"kafka:{'n' * 249}:99999"
    assert PARTITION_NAME_PATTERN.fullmatch(name)
    opening = answers.write_opening(name)
    most = 2**63 - 1
    first = most - BATCH_RECORDS_MAX + 1
    for count in (1, BATCH_RECORDS_MAX):
        told = most, first, count, most, most, most, most
        found = answers.write_reply(b"p" * 16, opening, *told)
        assert found == pure(answers.write_reply, answers, b"p" * 16, opening, *told)


@is_compiled
def test_answers_sent_at_once_are_those_that_are_printed_one_by_one() -> None:
    native = compiled("answers")
    assert native is not None
    pairs = [socket.socketpair() for _ in range(5)]
    openings = [answers.write_opening(f"topic-{at}") for at in range(len(pairs))]
    asked = [
        (
            ours.fileno(),
            255 + at,
            7 + at,
            1 + 40 * at,
            100 * at,
            openings[at],
            99 + at,
            300 + at,
            20 + at,
        )
        for at, (ours, _) in enumerate(pairs)
    ]
    try:
        assert native.send_write_replies(SHORT_HEAD, b"abc", asked, 1_000) == {}
        for at, ((_, number, seq, count, came_us, *_), (_, theirs)) in enumerate(
            zip(asked, pairs, strict=True)
        ):
            wanted = answers.write_reply(
                *(b"abc", openings[at], number, seq, count),
                *(99 + at, 1_000 - came_us, 300 + at, 20 + at),
            )
            assert theirs.recv(4_096) == wanted
    finally:
        for ours, theirs in pairs:
            ours.close()
            theirs.close()


@is_compiled
def test_what_a_socket_does_not_take_is_given_back() -> None:
    native = compiled("answers")
    assert native is not None
    full, reader = socket.socketpair()
    gone, other = socket.socketpair()
    other.close()
    full.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            full.send(bytes(65_536))
    try:
        asked = [
            (descriptor, at, at, 2, 0, OPENING, 9, 9, 9)
            for at, descriptor in enumerate((full.fileno(), gone.fileno(), -1), 1)
        ]
        unsent = native.send_write_replies(SHORT_HEAD, b"", asked, 9)
        wanted = {
            at: answers.write_reply(b"", OPENING, at + 1, at + 1, 2, 9, 9, 9, 9) for at in range(3)
        }
        assert unsent == wanted
    finally:
        for each in (full, reader, gone):
            each.close()
