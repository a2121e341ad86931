"""The machine that refuses untidy code: every rule, over every file of the repository."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

import pytest

from tests.tidy import conduct, imports, names, shape
from tests.tidy.source import REPOSITORY, SOURCE_FOLDERS, Finding, Source, every_source

Rule = Callable[[Source], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    shape.files_are_small,
    shape.functions_are_small,
    shape.modules_open_with_a_docstring,
    shape.module_names_say_something,
    shape.package_doors_only_re_export,
    shape.each_test_is_a_sentence,
    shape.nothing_is_left_for_later,
    conduct.only_the_disk_touches_files,
    conduct.only_the_clock_reads_time,
    conduct.only_the_command_line_prints,
    conduct.no_error_is_swallowed,
    conduct.no_test_sleeps,
)
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".cfg", ".sh"}
TOP_LEVEL = ("*.md", "*.toml", "Makefile", ".ci/*")


@pytest.fixture(scope="module")
def sources() -> tuple[Source, ...]:
    return every_source()


def every_text() -> Iterator[Source]:
    """Everything a person reads, Python or not."""
    paths = [path for pattern in TOP_LEVEL for path in REPOSITORY.glob(pattern)]
    for folder in (*SOURCE_FOLDERS, "docs", "requirements"):
        paths += [p for p in (REPOSITORY / folder).rglob("*") if p.suffix in TEXT_SUFFIXES]
    for path in sorted(paths):
        if path.is_file():
            name = PurePosixPath(path.relative_to(REPOSITORY).as_posix())
            yield Source(name, path.read_text(encoding="utf-8"))


def report(findings: list[Finding]) -> str:
    return "\n".join(["", *map(str, sorted(findings))])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_whole_repository_keeps_the_rule(rule: Rule, sources: tuple[Source, ...]) -> None:
    findings = [finding for source in sources for finding in rule(source)]
    assert not findings, report(findings)


def test_a_class_name_means_one_thing_in_the_whole_package(sources: tuple[Source, ...]) -> None:
    findings = list(names.names_mean_one_thing(sources))
    assert not findings, report(findings)


def test_no_text_names_a_machine_or_a_registry() -> None:
    findings = [finding for text in every_text() for finding in shape.no_machine_is_named(text)]
    assert not findings, report(findings)


def test_no_modules_import_each_other(sources: tuple[Source, ...]) -> None:
    knots = imports.knots(imports.imports_of(sources))
    assert knots == set()


def test_the_walk_does_see_the_package_and_the_tests(sources: tuple[Source, ...]) -> None:
    """A rule that is shown no files keeps quiet for ever."""
    seen = {str(source.path) for source in sources}
    assert "src/headwater/__init__.py" in seen
    assert "tests/tidy/test_tidy.py" in seen
