"""Hooks of the documentation site: what the pages of a repository have and a site does not.

The changelog and the contributor's page lie at the top of the repository, where people look for
them, and are shown on the site too. Links to programs, which a site does not carry, become plain
text. A star in the navigation stands for every page of that name, so that decision records are
listed without anybody listing them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

REPOSITORY = Path(__file__).resolve().parent.parent
FROM_THE_TOP = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
_TO_A_PROGRAM = re.compile(r"\[([^]]+)\]\(\.\./(?:\.\./)?(?!docs/)[^)]*\)")
_TO_A_PAGE = re.compile(r"\]\(docs/")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = _settled(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for name, source in FROM_THE_TOP.items():
        text = (REPOSITORY / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_TO_A_PAGE.sub("](", text)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    return _TO_A_PROGRAM.sub(r"`\1`", markdown)


def _settled(nav: Any, docs: Path) -> Any:
    """The same navigation, with a page for each star."""
    if isinstance(nav, list):
        return [each for item in nav for each in _spread(item, docs)]
    if isinstance(nav, dict):
        return {name: _settled(value, docs) for name, value in nav.items()}
    return nav


def _spread(item: Any, docs: Path) -> list[Any]:
    if isinstance(item, str) and "*" in item:
        return [str(path.relative_to(docs)) for path in sorted(docs.glob(item))]
    return [_settled(item, docs)]
