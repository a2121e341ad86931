"""What Spark raises, as one of our own errors.

An error of a task reaches the driver as text: the traceback of the Python worker inside a Java
exception inside a Python one. Ours is found in that text by its name and raised again as what it
was, so that the exit code and the advice of a damaged file are the same with Spark as without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headwater.core import errors
from headwater.core.errors import HeadwaterError, RequestError, StorageError, UnavailableError

MESSAGE_CHARACTERS_MAX: Final = 600
_RAISED: Final = re.compile(r"^(?:[\w.]+\.)?(?P<name>\w+): (?P<message>.+)$", re.MULTILINE)
_MODULE_MISSING: Final = re.compile(r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'")
_CONDITION: Final = re.compile(r"^\[(?P<condition>[A-Z][A-Z0-9_.]+)\] ?(?P<message>.*)", re.DOTALL)
_JAVA_PART: Final = re.compile(r"\n\s*at |\nJVM stacktrace|\nDriver stacktrace")
# Conditions of Spark that the caller must fix, by how their names begin.
_OF_THE_CALLER: Final = (
    "PATH_NOT_FOUND",
    "DATA_SOURCE_NOT_FOUND",
    "UNRESOLVED_",
    "PARSE_",
    "UNSUPPORTED_",
    "INVALID_",
)


class ModuleMissingError(StorageError):
    """An executor's Python lacks what the pipeline runs on."""


class JobFailedError(StorageError):
    """A Spark job ended with an error that is none of ours."""


@contextmanager
def explained() -> Iterator[None]:
    """Errors of Spark leave this block as ours."""
    try:
        yield
    except HeadwaterError:
        raise
    except Exception as error:
        known = explain(error)
        if known is None:
            raise
        raise known from error


def explain(error: BaseException) -> HeadwaterError | None:
    """The error of ours that this error of Spark stands for; None for one that is not Spark's."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException | Py4JError):
        return None
    text = str(error)
    return _ours(text) or _missing_module(text) or _of_spark(text)


def _ours(text: str) -> HeadwaterError | None:
    """The last one in the text: those before it are its causes."""
    latest: HeadwaterError | None = None
    for raised in _RAISED.finditer(text):
        kind = getattr(errors, raised["name"], None)
        if isinstance(kind, type) and issubclass(kind, HeadwaterError):
            latest = _again(kind, raised["message"].strip())
    return latest


def _again(kind: type[HeadwaterError], message: str) -> HeadwaterError:
    """The same class with the whole message. Parts such as a path are inside the text by now."""
    again = kind.__new__(kind)
    Exception.__init__(again, message)
    if isinstance(again, UnavailableError):
        again.retry_after_ms = 1_000
    elif isinstance(again, StorageError):
        again.what, again.path, again.offset, again.advice = message, None, None, None
    return again


def _missing_module(text: str) -> HeadwaterError | None:
    missing = _MODULE_MISSING.search(text)
    if missing is None:
        return None
    package = missing["module"].partition(".")[0]
    if package == "headwater":
        return ModuleMissingError(
            "an executor's Python has no headwater package",
            advice="let the session send it (that is the default), or install it there",
        )
    return ModuleMissingError(
        f"an executor's Python has no module {package}",
        advice=f"install numpy, pyarrow, xxhash and msgspec for the Python that runs on every "
        f"worker, or name another one in PYSPARK_PYTHON; here it was {package}",
    )


def _shortened(message: str, text: str) -> str:
    """The beginning, and what a Python worker raised, which is at the end of a traceback."""
    python = _JAVA_PART.split(text, maxsplit=1)[0]
    raised = [" ".join(each[0].split()) for each in _RAISED.finditer(python)]
    last = raised[-1][: MESSAGE_CHARACTERS_MAX // 2] if raised else ""
    return f"{message[: MESSAGE_CHARACTERS_MAX - 1 - len(last)]}…{last}"


def _of_spark(text: str) -> HeadwaterError:
    """Spark's own words without the stack of Java."""
    message = _JAVA_PART.split(text, maxsplit=1)[0]
    message = " ".join(message.split())
    if len(message) > MESSAGE_CHARACTERS_MAX:
        message = _shortened(message, text)
    condition = _CONDITION.match(message)
    if condition is not None and condition["condition"].startswith(_OF_THE_CALLER):
        return RequestError(condition["message"] or condition["condition"])
    return JobFailedError(f"Spark: {message}")
