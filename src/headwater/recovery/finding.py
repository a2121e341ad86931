"""What a survey of any store saw, and what follows from it: the words of every decision table.

Topics, Kafka's log and the machines each have a survey that changes nothing, verdicts and one
table of their own. The tables answer with these actions; reports and repairs are made of findings.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any, Final

from headwater.core.errors import (
    DamageError,
    ForeignFileError,
    NewerFormatError,
    StorageError,
)


class Action(Enum):
    KEEP = "kept"
    CUT = "cut at the last whole group"
    REWRITE = "written again from the files"
    REMOVE = "removed"
    QUARANTINE = "moved to quarantine"
    SKIP = "skipped, with a copy in quarantine"
    NOTE = "noted"
    REFUSE_DAMAGED = "refused as damaged"
    REFUSE_FOREIGN = "refused as foreign"
    REFUSE_NEWER = "refused as newer"

    @property
    def refuses(self) -> bool:
        return self in (Action.REFUSE_DAMAGED, Action.REFUSE_FOREIGN, Action.REFUSE_NEWER)


_REFUSALS: Final[dict[Action, tuple[type[StorageError], str]]] = {
    Action.REFUSE_DAMAGED: (
        DamageError,
        "nothing was changed; `headwater repair` shows what can be saved",
    ),
    Action.REFUSE_FOREIGN: (ForeignFileError, "move it away, or name another data directory"),
    Action.REFUSE_NEWER: (NewerFormatError, "use the version of Headwater that wrote it"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was seen and what follows from it."""

    path: PurePath
    offset: int | None
    action: Action
    what: str
    why: str

    @property
    def is_damage(self) -> bool:
        """Something that was promised is gone, whether a start goes on without it or not."""
        return self.action.refuses or self.action is Action.SKIP

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "offset": self.offset,
            "what": self.what,
            "action": self.action.value,
            "why": self.why,
        }

    def as_error(self) -> StorageError:
        error, advice = _REFUSALS[self.action]
        return error(self.what, path=self.path, offset=self.offset, advice=advice)

    def line(self) -> str:
        where = f"{self.path}" + ("" if self.offset is None else f" at byte {self.offset}")
        return f"{where}: {self.what}; {self.action.value} ({self.why})"
