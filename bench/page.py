"""Puts tables into a documentation page, between markers, so that no figure is typed by hand.

A page has `<!-- bench NAME -->` and `<!-- /bench NAME -->` where the table of a benchmark belongs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench.report import Result, markdown


def fill_page(page: Path, results: Sequence[Result]) -> list[str]:
    """Gives the names of benchmarks for which the page has no place."""
    text = page.read_text(encoding="utf-8")
    homeless = []
    for result in results:
        name = result.benchmark.name
        if not has_place(text, name):
            homeless.append(name)
            continue
        text = filled(text, name, markdown(result))
    page.write_text(text, encoding="utf-8")
    return homeless


def markers(name: str) -> tuple[str, str]:
    return f"<!-- bench {name} -->", f"<!-- /bench {name} -->"


def has_place(text: str, name: str) -> bool:
    begin, end = markers(name)
    return -1 < text.find(begin) < text.find(end)


def filled(text: str, name: str, table: str) -> str:
    begin, end = markers(name)
    place = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return place.sub(lambda _: f"{begin}\n\n{table}\n{end}", text, count=1)
