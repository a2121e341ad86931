"""`headwater wal dump`: every frame, and nothing that a terminal would obey."""

from __future__ import annotations

import base64
from pathlib import Path

from headwater.cli.output import preview, printable, when
from tests.unit.cli.conftest import Run
from tests.unit.cli.logs import HOSTILE, append, flip, open_log, some_payloads, write_log


def test_every_frame_is_shown_with_its_place_and_its_data(run: Run, data: Path) -> None:
    outcome = run("wal", "dump", data)
    assert outcome.code == 0
    heading, *lines = outcome.out.splitlines()
    assert heading.split() == [
        "file", "offset", "frame", "type", "topic", "seq", "time", "node", "tag", "bytes", "data",
    ]  # fmt: skip
    assert len(lines) == 41
    assert lines[0].split()[:4] == ["wal-0000000000000001.log", "0", "1", "commit_mark"]
    assert lines[1].endswith('{"number":0}')
    assert "clean stop" in lines[-1]


def test_json_gives_one_object_per_line_with_the_whole_record(run: Run, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 1, b'{"a":1}' + b" " * 500, node=b"web-1", tag=b"order")
    log.close()
    mark, record, stop = run("wal", "dump", tmp_path, "--json").json_lines()
    assert mark["body"]["frame_count"] == 1
    assert len(mark["body"]["log_id"]) == 16
    assert (record["offset"], record["frame"], record["type"]) == (134, 2, "append")
    assert (record["topic_id"], record["seq"], record["ts"]) == (7, 1, 1)
    assert (record["node"], record["tag"]) == ("web-1", "order")
    assert record["data"] == '{"a":1}' + " " * 500
    assert stop["body"]["kind"] == 2


def test_hostile_payloads_cannot_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 1, HOSTILE, node=HOSTILE, tag=HOSTILE)
    log.close()
    text = run("wal", "dump", tmp_path).out
    assert all(line.isprintable() for line in text.splitlines())
    assert "[bold]x[/bold]" in text
    assert "\\x1b[2J" in text
    shown = run("wal", "dump", tmp_path, "--json")
    assert shown.out.isascii()
    assert all(line.isprintable() for line in shown.out.splitlines())
    assert base64.b64decode(shown.json_lines()[1]["data_base64"]) == HOSTILE


def test_limit_and_from_frame_choose_a_part(run: Run, tmp_path: Path) -> None:
    files = write_log(tmp_path, some_payloads(200))
    assert len(files) > 1
    shown = run("wal", "dump", tmp_path, "--json", "--from-frame", "150", "--limit", "3")
    assert [frame["frame"] for frame in shown.json_lines()] == [150, 151, 152]
    everything = run("wal", "dump", tmp_path, "--json").json_lines()
    assert [frame["frame"] for frame in everything] == list(range(1, 402))
    assert len({frame["file"] for frame in everything}) == len(files)


def test_a_damaged_stretch_is_shown_in_its_place_and_the_rest_as_well(
    run: Run, data: Path, wal_file: Path
) -> None:
    flip(wal_file, 1_000)
    outcome = run("wal", "dump", data, "--json")
    assert outcome.code == 5
    assert "is not sound" in outcome.complaint()
    found = outcome.json_lines()
    gaps = [entry for entry in found if entry["type"] == "unreadable"]
    assert len(gaps) == 1
    assert gaps[0]["offset"] <= 1_000 < gaps[0]["end"]
    assert sum(entry["type"] == "append" for entry in found) == 19
    assert [entry["offset"] for entry in found] == sorted(entry["offset"] for entry in found)
    assert "(unreadable)" in run("wal", "dump", data).out


def test_text_for_a_terminal_has_no_character_that_moves_it() -> None:
    every = "".join(map(chr, [*range(0x300), 0x202E, 0x2028, 0x2066, 0xFEFF, 0xDC80]))
    assert printable(every).isprintable()
    assert preview(every.encode("utf-8", "surrogatepass"), 10_000).isprintable()
    assert preview(b"\\x1b") == "\\\\x1b", "a written escape must not look like a real one"
    assert len(preview(b"a" * 1_000)) == 60


def test_a_time_that_no_calendar_knows_stays_a_number() -> None:
    assert when(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert when(2**64 - 1) == str(2**64 - 1)
