"""Puts tables into a documentation page, between markers, so that no figure is typed by hand.

A page has `<!-- bench NAME -->` and `<!-- /bench NAME -->` where the table of a benchmark belongs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

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


PLOTS: Final = "plots"
"""The place of the pictures; no benchmark may have this name."""


def show_plots(page: Path, pictures: Mapping[Path, str]) -> bool:
    """Puts pictures into their place on the page, by file and title; False when it has none."""
    text = page.read_text(encoding="utf-8")
    if not has_place(text, PLOTS):
        return False
    shown = [
        f"![{title}]({path.resolve().relative_to(page.resolve().parent)})"
        for path, title in pictures.items()
    ]
    page.write_text(filled(text, PLOTS, "\n\n".join(shown) + "\n"), encoding="utf-8")
    return True


def markers(name: str) -> tuple[str, str]:
    return f"<!-- bench {name} -->", f"<!-- /bench {name} -->"


def has_place(text: str, name: str) -> bool:
    begin, end = markers(name)
    return -1 < text.find(begin) < text.find(end)


def filled(text: str, name: str, table: str) -> str:
    begin, end = markers(name)
    place = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return place.sub(lambda _: f"{begin}\n\n{table}\n{end}", text, count=1)
