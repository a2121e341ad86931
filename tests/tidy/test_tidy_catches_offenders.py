"""Each tidy rule is shown an offender it must catch and a decent file it must leave alone."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import NamedTuple

import pytest

from tests.tidy import conduct, imports, names, shape
from tests.tidy.source import Source
from tests.tidy.test_tidy import RULES, Rule

WAL = "src/headwater/wal/shard.py"
TEST = "tests/unit/test_shard.py"
CLOCK = "src/headwater/core/clock.py"
DOOR = "src/headwater/wal/__init__.py"
# Written in two halves, so that this file does not name a machine itself.
ROOT_PATH = "/ro" + "ot/data"
REGISTRY = "--index" + "-url"


class Case(NamedTuple):
    rule: Rule
    path: str
    text: str


def long_function(lines: int) -> str:
    return "def long() -> None:\n" + "    step()\n" * (lines - 1)


BAD = (
    Case(shape.files_are_small, WAL, "step()\n" * 601),
    Case(shape.functions_are_small, WAL, long_function(71)),
    Case(shape.modules_open_with_a_docstring, WAL, "import os\n"),
    Case(shape.module_names_say_something, "src/headwater/wal/utils.py", ""),
    Case(shape.module_names_say_something, "src/headwater/wal/file_helpers.py", ""),
    Case(shape.module_names_say_something, "src/headwater/common/frames.py", ""),
    Case(shape.package_doors_only_re_export, DOOR, "def surprise() -> None: ...\n"),
    Case(shape.package_doors_only_re_export, DOOR, '__version__ = "2"\n'),
    Case(shape.package_doors_only_re_export, DOOR, "import os\n'not a docstring'\n"),
    Case(shape.each_test_is_a_sentence, TEST, "def test_append() -> None: ...\n"),
    Case(shape.each_test_is_a_sentence, TEST, "async def test_append_is_fine() -> None: ...\n"),
    Case(shape.nothing_is_left_for_later, WAL, "step()  # TODO: check\n"),
    Case(shape.nothing_is_left_for_later, WAL, 'def f():\n    """FIXME later."""\n'),
    Case(shape.no_machine_is_named, "docs/start.md", f"Look into {ROOT_PATH} first.\n"),
    Case(shape.no_machine_is_named, "Makefile", f"\tpip install {REGISTRY} there\n"),
    Case(conduct.only_the_disk_touches_files, WAL, "open('x')\n"),
    Case(conduct.only_the_disk_touches_files, WAL, "import os\nos.rename('a', 'b')\n"),
    Case(conduct.only_the_disk_touches_files, WAL, "from os import fsync as f\nf(3)\n"),
    Case(conduct.only_the_disk_touches_files, WAL, "import os.path\nos.path.exists('a')\n"),
    Case(conduct.only_the_disk_touches_files, WAL, "from pathlib import Path\nPath('a')\n"),
    Case(conduct.only_the_disk_touches_files, WAL, "name.read_bytes()\n"),
    Case(conduct.only_the_disk_touches_files, WAL, "import shutil\nshutil.rmtree('a')\n"),
    Case(conduct.only_the_disk_touches_files, "src/headwater/testing/clock.py", "open('x')\n"),
    Case(conduct.only_the_disk_touches_files, "src/headwater/cli/show.py", "open('x')\n"),
    Case(conduct.only_the_clock_reads_time, WAL, "import time\ntime.time()\n"),
    Case(conduct.only_the_clock_reads_time, WAL, "import time as t\nt.sleep(1)\n"),
    Case(conduct.only_the_clock_reads_time, WAL, "import time\ndef f(n=time.monotonic): ...\n"),
    Case(conduct.only_the_clock_reads_time, WAL, "from datetime import datetime\ndatetime.now()\n"),
    Case(conduct.only_the_command_line_prints, WAL, "print('here')\n"),
    Case(conduct.only_the_command_line_prints, WAL, "import sys\nsys.stderr.write('x')\n"),
    Case(conduct.no_error_is_swallowed, WAL, "try:\n    f()\nexcept:\n    g()\n"),
    Case(conduct.no_error_is_swallowed, WAL, "try:\n    f()\nexcept Exception:\n    pass\n"),
    Case(conduct.no_error_is_swallowed, WAL, "try: f()\nexcept (OSError, Exception): ...\n"),
    Case(
        conduct.no_error_is_swallowed,
        WAL,
        "import contextlib\nwith contextlib.suppress(Exception):\n    f()\n",
    ),
    Case(conduct.no_test_sleeps, TEST, "import time\ntime.sleep(0.1)\n"),
    Case(conduct.no_test_sleeps, TEST, "from asyncio import sleep\nsleep(0.1)\n"),
)

GOOD = (
    Case(shape.files_are_small, WAL, "step()\n" * 600),
    Case(shape.functions_are_small, WAL, long_function(70)),
    Case(shape.modules_open_with_a_docstring, WAL, '"""One shard."""\n'),
    Case(shape.modules_open_with_a_docstring, "tests/__init__.py", ""),
    Case(shape.module_names_say_something, "src/headwater/wal/commit_policy.py", ""),
    Case(shape.package_doors_only_re_export, DOOR, '"""x"""\nfrom a import b\n__all__ = ["b"]\n'),
    Case(shape.each_test_is_a_sentence, TEST, "def test_a_torn_tail_is_cut() -> None: ...\n"),
    Case(shape.each_test_is_a_sentence, WAL, "def test() -> None: ...\n"),
    Case(shape.nothing_is_left_for_later, WAL, 'word = "TODO"\n'),
    Case(shape.no_machine_is_named, "docs/start.md", "See https://example.org/home/me.\n"),
    Case(conduct.only_the_disk_touches_files, "src/headwater/disk/posix.py", "open('x')\n"),
    Case(conduct.only_the_disk_touches_files, TEST, "open('x')\n"),
    Case(conduct.only_the_disk_touches_files, WAL, "disk.open('x')\nself.disk.unlink(name)\n"),
    Case(conduct.only_the_disk_touches_files, WAL, "import os\nos.environ.get('A')\nos.getpid()\n"),
    Case(conduct.only_the_disk_touches_files, WAL, "from pathlib import PurePath\nPurePath('a')\n"),
    Case(
        conduct.only_the_disk_touches_files,
        "src/headwater/cli/show.py",
        "import sys\nfrom pathlib import Path\ndef show(file: Path): sys.stdin.read()\n",
    ),
    Case(
        conduct.only_the_clock_reads_time,
        "src/headwater/core/clock.py",
        "import time\ntime.time()\n",
    ),
    Case(conduct.only_the_clock_reads_time, "bench/timing.py", "import time\ntime.monotonic()\n"),
    Case(conduct.only_the_command_line_prints, "src/headwater/cli/show.py", "print('here')\n"),
    Case(conduct.no_error_is_swallowed, WAL, "try:\n    f()\nexcept Exception as e:\n    g(e)\n"),
    Case(conduct.no_error_is_swallowed, WAL, "try:\n    f()\nexcept OSError:\n    pass\n"),
    Case(conduct.no_test_sleeps, TEST, "import asyncio\nasyncio.sleep(0)\n"),
    Case(conduct.no_test_sleeps, WAL, "import time\ntime.sleep(1)\n"),
)


def judge(case: Case) -> list[str]:
    return [str(finding) for finding in case.rule(Source(PurePosixPath(case.path), case.text))]


def name(case: Case) -> str:
    return case.rule.__name__


@pytest.mark.parametrize("case", BAD, ids=name)
def test_the_rule_catches_the_offender_and_says_where(case: Case) -> None:
    findings = judge(case)
    assert findings
    assert all(finding.startswith(f"{case.path}:") for finding in findings)


@pytest.mark.parametrize("case", GOOD, ids=name)
def test_the_rule_leaves_decent_code_alone(case: Case) -> None:
    assert judge(case) == []


def test_every_rule_has_an_offender_and_a_decent_file() -> None:
    rules = {*RULES, shape.no_machine_is_named}
    assert {case.rule for case in BAD} == rules
    assert {case.rule for case in GOOD} == rules


def classes(*defined: str) -> list[Source]:
    """One file for each name, in the package."""
    return [
        Source(PurePosixPath(f"src/headwater/wal/part_{number}.py"), f"class {each}: ...\n")
        for number, each in enumerate(defined)
    ]


def test_a_name_of_two_classes_is_a_finding_at_each_of_them() -> None:
    findings = list(names.names_mean_one_thing(classes("Gap", "_Gap", "Batch"), {}))
    assert [str(each.path)[-4:] for each in findings] == ["0.py", "1.py"]


def test_a_name_may_mean_two_things_where_the_table_says_why() -> None:
    assert not list(names.names_mean_one_thing(classes("Gap", "_Gap"), {"Gap": "a reason"}))


def test_a_reason_that_is_not_needed_any_more_is_a_finding() -> None:
    (finding,) = names.names_mean_one_thing(classes("Gap"), {"Gap": "a reason"})
    assert "Gap means one thing" in str(finding)


def package(**texts: str) -> list[Source]:
    return [Source(PurePosixPath(f"src/headwater/{name}.py"), text) for name, text in texts.items()]


@pytest.mark.parametrize(
    "back",
    [
        "from headwater.one import First\n",
        "from headwater import one\n",
        "import headwater.one\n",
        "def late():\n    from headwater.one import First\n",
        "if TYPE_CHECKING:\n    from headwater.one import First\n",
    ],
)
def test_modules_that_import_each_other_are_found_whatever_the_way_back(back: str) -> None:
    sources = package(
        one="from headwater.two import Second\n", two="import headwater.three\n", three=back
    )
    knot = frozenset(("headwater.one", "headwater.two", "headwater.three"))
    assert imports.knots(imports.imports_of(sources)) == {knot}


def test_modules_that_import_one_way_are_no_knot() -> None:
    sources = package(
        one="from headwater.two import Second\nimport headwater.three\n",
        two="from headwater.three import Third\n",
        three="import os\n",
    )
    assert imports.knots(imports.imports_of(sources)) == set()
