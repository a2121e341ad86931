"""Parts of a data directory that can be away while the rest is served.

Topics are the engine itself: without them nothing starts. The machines and Kafka's log lie beside
them, each in a directory of its own; when one of them cannot be opened for damage (I5), it is held
here with the reason. Every call to it raises that reason, as a new error of the same class that
names file and offset; readiness, status, the log and a metric report it. It stays away until the
next start: a repair needs the directory's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from typing import Any, Final

from headwater.core.errors import AccessError, StorageError
from headwater.recovery.finding import Finding

_log = logging.getLogger("headwater.parts")


class Part(Enum):
    MACHINES = "machines"
    KAFKA = "kafka"

    @property
    def not_served(self) -> str:
        return _NOT_SERVED[self]


_NOT_SERVED: Final = {
    Part.MACHINES: "the machines are not served",
    Part.KAFKA: "Kafka's log is not served",
}


@dataclass(slots=True)
class Parts:
    """Which parts are away, and why. Set by the code that opens a part; read by every call."""

    away: dict[Part, StorageError] = field(default_factory=dict)
    repaired: dict[Part, Sequence[Finding]] = field(default_factory=dict)
    """What a start found that it goes on in spite of: skipped, cut, moved to quarantine."""

    def set_away(self, part: Part, error: Exception, directory: PurePath) -> None:
        """From now on the part is answered with this error. Call with what opening it raised."""
        reason = _as_storage_error(error, directory)
        self.away[part] = reason
        _log.error("%s: %s", part.not_served, reason)

    def require(self, part: Part) -> None:
        """Raises while the part is away."""
        reason = self.away.get(part)
        if reason is not None:
            raise self._error_of(part, reason)

    def error(self, part: Part) -> StorageError | None:
        """What `require` would raise; None while the part is served, or not used yet."""
        reason = self.away.get(part)
        return None if reason is None else self._error_of(part, reason)

    def _error_of(self, part: Part, reason: StorageError) -> StorageError:
        """A new one each time: an error that is raised again and again gathers tracebacks."""
        kind = type(reason)
        made = kind(
            f"{part.not_served}: {reason.what}",
            path=reason.path,
            offset=reason.offset,
            advice=reason.advice,
        )
        made.detail = self.detail(part)
        return made

    def detail(self, part: Part) -> dict[str, Any]:
        """The same for programs."""
        reason = self.away[part]
        return {
            "part": part.value,
            "what": reason.what,
            "file": None if reason.path is None else str(reason.path),
            "offset": reason.offset,
            "advice": reason.advice,
        }

    def repairs(self) -> list[dict[str, Any]]:
        """What was repaired, for readiness and status: it tells operators about their disk."""
        return [
            {"part": part.value, **finding.as_dict()}
            for part, findings in self.repaired.items()
            for finding in findings
        ]

    def details(self) -> list[dict[str, Any]]:
        return [self.detail(part) for part in Part if part in self.away]


CAUSES: Final = (StorageError, OSError)
"""What opening a part may raise that makes it away. Anything else is a mistake, or passes by
itself, and stops the start as before."""


def _as_storage_error(error: Exception, directory: PurePath) -> StorageError:
    if isinstance(error, StorageError):
        return error
    assert isinstance(error, OSError), error
    why = (error.strerror or str(error)).lower()
    access_error = AccessError(
        f"the system says {why!r}",
        path=PurePath(error.filename) if isinstance(error.filename, str) else directory,
        advice="check the disk, then start again",
    )
    access_error.__cause__ = error
    return access_error
