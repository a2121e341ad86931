"""docs/format.md says what the code does, because it is printed by the code."""

from __future__ import annotations

import re
from pathlib import Path

from headwater.format.checksum import checksum64
from headwater.format.frame import FRAME_TYPE_MEANING, FrameType, decode_frame
from headwater.format.layout import Field, Layout
from headwater.format.mark import decode_mark
from tests.format_page import page

PAGE = Path(__file__).parents[2] / "docs" / "format.md"


def test_the_page_is_what_the_tables_print_today() -> None:
    assert PAGE.read_text(encoding="utf-8") == page.render(), "stale; run: make docs-format"


def test_the_worked_example_on_the_page_decodes_as_a_group() -> None:
    dump = re.search(r"```hex\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert dump is not None
    group = bytes.fromhex("".join(line[8:] for line in dump[1].splitlines()))
    mark = decode_mark(memoryview(group), 0, len(group))
    assert mark.end == len(group)
    assert checksum64(group[mark.body_at :]) == mark.body_hash
    record = decode_frame(memoryview(group), mark.body_at, mark.end)
    assert (record.type, record.topic_id, record.seq) == (FrameType.APPEND, 7, 1)
    assert (record.node, record.tag, record.data) == (b"web-1", b"order", b'{"total":42}')
    assert record.offset + record.size == len(group)


def test_the_example_table_and_the_hex_dump_are_the_same_bytes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    cells = re.findall(r"^\| \d+ \| `([0-9a-f ]+)` \|", text, re.MULTILINE)
    dump = re.search(r"```hex\n(.*?)```", text, re.DOTALL)
    assert dump is not None
    in_dump = "".join(line[8:] for line in dump[1].splitlines())
    assert bytes.fromhex(" ".join(cells)) == bytes.fromhex(in_dump)


def test_every_frame_type_is_explained_on_the_page() -> None:
    assert set(FRAME_TYPE_MEANING) == set(FrameType)
    text = PAGE.read_text(encoding="utf-8")
    for kind in FrameType:
        assert f"| {int(kind)} | {kind.name} |" in text


def test_a_chapter_takes_any_layout_that_is_added_later() -> None:
    later = Layout("dense entry", (Field("at", "u32", "where"),), big_endian=True)
    shown = page.Chapter("Dense index", ("Why.", later)).markdown()
    assert "**Dense entry**: 4 fixed bytes, big-endian." in shown
    assert "| 0 | 4 | at | u32 | where |" in shown
