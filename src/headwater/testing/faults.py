"""What a fault disk can be set to do: which call goes wrong, and how.

Calls are counted from 0, among those that match the verb and the path, so a sweep reads
`for nth in range(len(calls))`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Final


class Verb(Enum):
    OPEN = "open"
    CREATE = "create"
    """`open` with OpenMode.CREATE: a verb of its own, since it changes the disk."""
    EXISTS = "exists"
    IS_DIRECTORY = "is_directory"
    LIST_DIRECTORY = "list_directory"
    MAKE_DIRECTORY = "make_directory"
    REMOVE_DIRECTORY = "remove_directory"
    RENAME = "rename"
    UNLINK = "unlink"
    SYNC_DIRECTORY = "sync_directory"
    FREE_BYTES = "free_bytes"
    LOCK_DIRECTORY = "lock_directory"
    SIZE = "size"
    READ = "read"
    VIEW = "view"
    WRITE = "write"
    SYNC_DATA = "sync_data"
    TRUNCATE = "truncate"
    ALLOCATE = "allocate"
    CLOSE = "close"
    RELEASE = "release"


CHANGING_VERBS: Final = frozenset(
    {
        Verb.CREATE,
        Verb.MAKE_DIRECTORY,
        Verb.REMOVE_DIRECTORY,
        Verb.RENAME,
        Verb.UNLINK,
        Verb.SYNC_DIRECTORY,
        Verb.WRITE,
        Verb.SYNC_DATA,
        Verb.TRUNCATE,
        Verb.ALLOCATE,
    }
)
"""What a crash sweep steps over: between two others the disk is the same."""

READING_VERBS: Final = frozenset(
    {Verb.OPEN, Verb.LIST_DIRECTORY, Verb.FREE_BYTES, Verb.SIZE, Verb.READ, Verb.VIEW}
)

FAILING_VERBS: Final = CHANGING_VERBS | READING_VERBS
"""What an error sweep steps over: `exists`, `is_directory` and `close` do not fail in practice."""

SPACE_VERBS: Final = frozenset(
    {Verb.CREATE, Verb.MAKE_DIRECTORY, Verb.RENAME, Verb.WRITE, Verb.ALLOCATE, Verb.SYNC_DATA}
)
"""What a full disk can refuse."""

ALL_VERBS: Final = frozenset(Verb)


def as_verbs(verbs: Verb | Iterable[Verb]) -> frozenset[Verb]:
    return frozenset({verbs}) if isinstance(verbs, Verb) else frozenset(verbs)


def matches_path(pattern: str, path: PurePath) -> bool:
    """A pattern without a slash is about the last name, one with a slash about the whole path."""
    return fnmatchcase(str(path) if "/" in pattern else path.name, pattern)


@dataclass(frozen=True, slots=True)
class DiskCall:
    """One call that reached a fault disk."""

    index: int
    verb: Verb
    path: PurePath
    detail: str = ""

    def __str__(self) -> str:
        return f"call {self.index}: {self.verb.value} {self.path}{self.detail}"


@dataclass(slots=True)
class Fault:
    """One line of the fault table. Keeps its own count, so give each test a new one."""

    verbs: Verb | Iterable[Verb] = ALL_VERBS
    number: int | None = errno.EIO
    """The errno to fail with; None lets the call through (for a short write or a slow sync)."""
    path: str = "*"
    nth: int = 0
    """Which matching call fails; 0 is the first."""
    always: bool = False
    """Also every matching call after the nth."""
    short_bytes: int | None = None
    """A write takes only so many bytes. With an errno they are taken *and* the call fails."""
    before: Callable[[], None] | None = None
    """Called ahead of the call, outside any lock: block on an event here for a slow disk."""
    clean_after_error: bool = False
    """A failed sync_data also makes the disk forget the dirty bytes, as Linux may."""
    enabled: bool = True
    """Set to False when the trouble is over: the space was freed, the cable is back."""
    seen: int = field(default=0, init=False)
    struck: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.verbs = as_verbs(self.verbs)

    def strikes(self, verb: Verb, path: PurePath) -> bool:
        """Count the call if it matches; True when this is the one."""
        assert isinstance(self.verbs, frozenset)
        if not self.enabled or verb not in self.verbs or not matches_path(self.path, path):
            return False
        position = self.seen
        self.seen += 1
        if position == self.nth or (self.always and position > self.nth):
            self.struck += 1
            return True
        return False


class When(Enum):
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The process ends at the nth matching call, before or after it takes effect."""

    nth: int
    when: When = When.BEFORE
    verbs: frozenset[Verb] = CHANGING_VERBS
    path: str = "*"

    def matches(self, call: DiskCall) -> bool:
        return call.verb in self.verbs and matches_path(self.path, call.path)

    def __str__(self) -> str:
        return f"crash {self.when.value} matching call {self.nth}"


class SimulatedCrash(BaseException):
    """The process ended here. Not an Exception, so that no handler survives its own death."""
