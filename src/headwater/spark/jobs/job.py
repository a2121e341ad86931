"""What every pipeline job shares: where the data is, how it shows its progress, what it reports.

A job is a module with a frozen struct of options, a frozen struct of findings (a `Report`) and a
plain function `run(spark, options, progress=None)`. It prints nothing and exits nowhere: the
command line, a notebook and spark-submit show the same report each in their way.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, ClassVar, Protocol

import msgspec

from headwater.core.errors import RequestError, StorageError


class Progress(Protocol):
    """What shows the progress of a job. May be called from any thread, and as often as it suits."""

    def total(self, count: int) -> None:
        """So many units there are in all, as far as is known by now."""

    def advance(self, count: int) -> None:
        """So many more units are done."""

    def say(self, text: str) -> None:
        """What is being done now, in a few words."""


class NoProgress:
    """Shows nothing."""

    def total(self, count: int) -> None: ...

    def advance(self, count: int) -> None: ...

    def say(self, text: str) -> None: ...


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the topics are: a data directory, or a server."""

    path: str | None = None
    url: str | None = None
    token: str | None = None
    topics: tuple[str, ...] = ()

    def options(self) -> dict[str, str]:
        """Where it is, as options of `spark.read.format("headwater")` and of its writer."""
        if (self.path is None) == (self.url is None):
            raise RequestError("name a data directory (--path) or a server (--url), one of them")
        given = {"path": self.path, "url": self.url, "token": self.token}
        return {key: value for key, value in given.items() if value is not None}

    def reading(self) -> dict[str, str]:
        """The same with the topics, as options of a reader; without names it is all topics."""
        if self.topics:
            return {**self.options(), "topics": ",".join(self.topics)}
        return {**self.options(), "topicPattern": ".*"}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a job did. Subclasses add their findings as further fields."""

    exit_code: ClassVar[int] = StorageError.exit_code
    """What the command line ends with when not all is well."""

    ok: bool
    """All is well: the command line ends with 0 only then."""

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON, in the order of the fields."""
        values: dict[str, Any] = msgspec.to_builtins(self, enc_hook=_plain)
        return values


def _plain(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    raise NotImplementedError(f"a report cannot hold {type(value).__name__}")
