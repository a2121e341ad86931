"""Rules about what code may do: files, clocks, printing, swallowed errors, sleeping tests.

Each of these has one room that owns it. The tables of exceptions name the files, with the
reason beside them, so that an exception is seen in review.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.source import Finding, Source

MAY_TOUCH_FILES = (
    "disk/",  # the seam itself
    "server/gateway_slots.py",  # memory of several processes; there is no file behind it
    "testing/real_disk.py",  # wraps the real disk for the test kit
    "testing/torture/",  # a program that looks at a server from outside
)
MAY_READ_CLOCKS = ("core/clock.py", "testing/torture/")  # it measures real time, as a user does
MAY_PRINT = ("cli/", "testing/torture/")

# Calls of `os` that touch no file. Everything else in `os` is taken for a file call, so a
# new one is refused until somebody has looked at it.
HARMLESS_OS = frozenset(
    (
        "PathLike", "WNOHANG", "_exit", "cpu_count", "environ", "fork", "fsdecode", "fsencode",
        "fspath", "getenv", "geteuid", "getpid", "getppid", "kill", "linesep", "pathsep",
        "process_cpu_count",
        "sched_getaffinity", "sched_setaffinity", "sep", "strerror", "sysconf", "times", "uname",
        "urandom", "waitpid", "waitstatus_to_exitcode",
        "path.abspath", "path.basename", "path.commonpath", "path.dirname", "path.isabs",
        "path.join", "path.normpath", "path.relpath", "path.sep", "path.split", "path.splitext",
    )
)  # fmt: skip
FILE_MODULES = ("fcntl", "glob", "mmap", "shutil", "tempfile")
FILE_NAMES = frozenset(
    (
        "open",
        "io.open",
        "io.open_code",
        "io.FileIO",
        "codecs.open",
        "numpy.memmap",
        "numpy.fromfile",
    )
)
# Method names that only `pathlib.Path` has; a disk's own verbs are named differently.
PATH_METHODS = frozenset(
    ("read_text", "write_text", "read_bytes", "write_bytes", "iterdir", "rglob")
)

CLOCKS = frozenset(
    (
        "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns",
        "time.perf_counter", "time.perf_counter_ns", "time.sleep", "time.clock_gettime",
        "time.clock_gettime_ns", "time.localtime", "time.gmtime", "time.strftime", "time.ctime",
        "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today",
        "datetime.date.today",
    )
)  # fmt: skip
PRINTERS = frozenset(("print", "rich.print", "sys.stdout", "sys.stderr"))
EVERYTHING = frozenset(("Exception", "BaseException"))


def only_the_disk_touches_files(source: Source) -> Iterator[Finding]:
    if not source.in_package or source.inside.startswith(MAY_TOUCH_FILES):
        return
    for node, name in source.names_used:
        if _is_file_call(name) or (_is_real_path(name) and not source.inside.startswith("cli/")):
            yield source.finding(node, f"{name}: only headwater.disk touches files")
    for call in source.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in PATH_METHODS:
            yield source.finding(call, f".{call.func.attr}(): only headwater.disk touches files")


def _is_file_call(name: str) -> bool:
    module, _, member = name.partition(".")
    if module == "os":
        # The second spelling lets os.environ.get and the like pass with os.environ.
        return bool(member) and HARMLESS_OS.isdisjoint((member, member.partition(".")[0]))
    return name in FILE_NAMES or (module in FILE_MODULES and bool(member))


def _is_real_path(name: str) -> bool:
    """`PurePath` can be named and joined anywhere; `Path` can reach the disk.

    The command line may hold one because typer parses arguments into it.
    """
    return name in {"pathlib.Path", "pathlib.PosixPath"} or name.startswith("pathlib.Path.")


def only_the_clock_reads_time(source: Source) -> Iterator[Finding]:
    if not source.in_package or source.inside.startswith(MAY_READ_CLOCKS):
        return
    for node, name in source.names_used:
        if name in CLOCKS:
            yield source.finding(node, f"{name}: ask the clock you were given")


def only_the_command_line_prints(source: Source) -> Iterator[Finding]:
    if not source.in_package or source.inside.startswith(MAY_PRINT):
        return
    for node, name in source.names_used:
        if name in PRINTERS or name.startswith(("sys.stdout.", "sys.stderr.")):
            yield source.finding(node, f"{name}: only headwater.cli talks to the terminal")


def no_error_is_swallowed(source: Source) -> Iterator[Finding]:
    """Catching everything is allowed only by somebody who then does something about it."""
    for handler in source.nodes(ast.ExceptHandler):
        if handler.type is None:
            yield source.finding(handler, "bare except: name what may fail")
        elif _catches_everything(source, handler.type) and _does_nothing(handler.body):
            yield source.finding(handler, "an error of any kind disappears here")
    for call in source.nodes(ast.Call):
        if _suppresses_everything(source, call):
            yield source.finding(call, "an error of any kind disappears here")


def _suppresses_everything(source: Source, call: ast.Call) -> bool:
    return source.spelled_out(call.func) == "contextlib.suppress" and any(
        _catches_everything(source, argument) for argument in call.args
    )


def _catches_everything(source: Source, caught: ast.expr) -> bool:
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(source.spelled_out(name).removeprefix("builtins.") in EVERYTHING for name in names)


def _does_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(statement, (ast.Pass, ast.Continue))
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


def no_test_sleeps(source: Source) -> Iterator[Finding]:
    """`asyncio.sleep(0)` only lets others run, so it is no sleep."""
    if not source.is_test:
        return
    for node in source.nodes(ast.Call):
        name = source.spelled_out(node.func)
        lets_others_run = [ast.dump(argument) for argument in node.args] == ["Constant(value=0)"]
        if name == "time.sleep" or (name == "asyncio.sleep" and not lets_others_run):
            yield source.finding(node, f"{name}: wait for the event, or move the manual clock")
