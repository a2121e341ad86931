"""What the pages say about the source is true, and a page that says something else is noticed."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

import pytest

from tests.tidy import pages, shape
from tests.tidy.source import PACKAGE, REPOSITORY, Finding, Source, every_source

CONTRIBUTING = pages.page("CONTRIBUTING.md")
README = pages.page("README.md")
INTERNALS = pages.page("docs/internals.md")
HISTORY = ("docs/track-record.md", "docs/conformance.md")
PAGES = [
    pages.page(path.relative_to(REPOSITORY).as_posix())
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/*.md")
    for path in sorted(REPOSITORY.glob(pattern))
    if path.relative_to(REPOSITORY).as_posix() not in HISTORY
]


@pytest.fixture(scope="module")
def package() -> list[Source]:
    return [source for source in every_source() if source.in_package]


@pytest.fixture(scope="module")
def product(package: list[Source]) -> list[Source]:
    """The package without the test kit, which may use whatever it tests with."""
    return [source for source in package if pages.room_of(source) != "testing"]


def listed(findings: Iterator[Finding]) -> str:
    return "\n".join(map(str, findings))


def rooms() -> set[str]:
    root = REPOSITORY / PACKAGE
    return {path.name for path in root.iterdir() if path.is_dir() and path.name[0] != "_"}


def libraries(sources: list[Source]) -> set[str]:
    """Everything that is imported and neither ours nor of Python."""
    names = {name.partition(".")[0] for source in sources for name in pages.imports(source)}
    return names - sys.stdlib_module_names - {"headwater"}


def test_every_room_imports_what_contributing_says(product: list[Source]) -> None:
    wrong = listed(pages.rooms_import_what_is_said(CONTRIBUTING, product))
    assert not wrong, f"\n{wrong}"


def test_each_store_of_recovery_has_the_modules_that_internals_lists() -> None:
    section = INTERNALS.text.partition("## After a crash")[2].partition("## ")[0]
    stores = re.findall(r"`(\w+)`", section.partition("same modules:")[2].partition("\n")[0])
    modules = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert (stores, len(modules)) == (["topics", "machines", "kafka"], 4)
    recovery = REPOSITORY / PACKAGE / "recovery"
    wanted = [recovery / store / f"{module}.py" for store in stores for module in modules]
    assert [path for path in wanted if not path.is_file()] == []


def test_every_library_is_imported_where_contributing_says(product: list[Source]) -> None:
    rows = pages.libraries_are_imported_where_is_said(CONTRIBUTING, product, libraries(product))
    wrong = listed(rows)
    assert not wrong, f"\n{wrong}"


def test_contributing_and_readme_have_every_room() -> None:
    assert set(CONTRIBUTING.table("room", "its rule")) == rooms()
    tree = README.text.partition("src/headwater/\n")[2].partition("```")[0]
    assert set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE)) == rooms()
    assert {path.name for path in (REPOSITORY / "tests" / "unit").glob("[a-z]*")} <= rooms()


def test_contributing_draws_the_layers_of_the_import_contract() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    layers = [re.sub(r"[()]", "", layer) for layer in contract]
    assert "```\n" + "\n".join(layers) + "\n```" in CONTRIBUTING.text


def test_contributing_has_the_limits_of_the_tidy_test() -> None:
    limits = f"files over {shape.FILE_LINES_MAX} lines, functions over {shape.FUNCTION_LINES_MAX}."
    assert limits in CONTRIBUTING.text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.path))
def test_files_that_a_page_names_exist(page: pages.Page) -> None:
    wrong = listed(pages.paths_exist(page))
    assert not wrong, f"\n{wrong}"


def test_functions_that_internals_names_exist(package: list[Source]) -> None:
    wrong = listed(pages.names_exist(INTERNALS, package))
    assert not wrong, f"\n{wrong}"
    assert re.search(r"`\w+\.\w+(\.\w+)?`", INTERNALS.text), "there is something to check"


# -- what they catch


MODULE = Source(
    PurePosixPath("src/headwater/wal/shard.py"),
    "import os\nimport numpy\nfrom headwater.disk import api\n\n"
    "class Shard:\n    def rotate(self): return os.environ\n",
)
OTHER = Source(PurePosixPath("src/headwater/disk/api.py"), "LIMIT: int = 3\n")
TABLES = """
| room | imports |
|---|---|
| `disk` | |
| `wal` | `disk` |

| library | imported in |
|---|---|
| `numpy` | `wal` |
| `os.environ` | `wal/shard.py` |
"""

ROOMS: Callable[[pages.Page], Iterator[Finding]] = lambda said: (  # noqa: E731
    pages.rooms_import_what_is_said(said, [MODULE, OTHER])
)
LIBRARIES: Callable[[pages.Page], Iterator[Finding]] = lambda said: (  # noqa: E731
    pages.libraries_are_imported_where_is_said(said, [MODULE, OTHER], ["numpy"])
)
NAMES: Callable[[pages.Page], Iterator[Finding]] = lambda said: (  # noqa: E731
    pages.names_exist(said, [MODULE, OTHER])
)


@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        (ROOMS, "| `wal` | `disk` |", "| `wal` | |"),
        (ROOMS, "| `wal` | `disk` |", "| `wal` | `disk`, `core` |"),
        (ROOMS, "| `disk` | |\n", ""),
        (LIBRARIES, "`wal` |\n", "`disk` |\n"),
        (LIBRARIES, "`wal` |\n", "|\n"),
        (LIBRARIES, "`wal` |\n", "`wal`, `store` |\n"),
        (LIBRARIES, "| `os.environ` | `wal/shard.py` |\n", ""),
        (NAMES, "", "`shard.Shard.seal`"),
        (NAMES, "", "`shards.Shard`"),
        (pages.paths_exist, "", "`wal/no_such_file.py`"),
        (pages.paths_exist, "", "`tests/nowhere`"),
    ],
)
def test_a_page_that_says_something_else_is_noticed(
    rule: Callable[[pages.Page], Iterator[Finding]], old: str, new: str
) -> None:
    name = PurePosixPath("CONTRIBUTING.md")
    text = TABLES.replace(old, new, 1) if old else f"{TABLES}\n{new}\n"
    assert [*rule(pages.Page(name, text))]


@pytest.mark.parametrize("rule", [ROOMS, LIBRARIES, NAMES, pages.paths_exist])
def test_a_page_that_says_what_is_true_passes(
    rule: Callable[[pages.Page], Iterator[Finding]],
) -> None:
    fine = f"{TABLES}\n`shard.Shard.rotate`, `api.LIMIT`, `wal/shard.py`, `3/4`, `numpy`\n"
    assert listed(rule(pages.Page(PurePosixPath("CONTRIBUTING.md"), fine))) == ""
