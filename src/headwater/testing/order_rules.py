"""Rules about the order of disk calls, as data: this step only after that is true.

A rule names the step it watches (`after`), what must be true by then (`before`), and why. The
ready rules below are the ones a log depends on: bytes before names, data before index, index
before mark, mark before trim, and nothing overwritten that was promised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from typing import Protocol

from headwater.testing.faults import Verb, as_verbs, matches_path


@dataclass(slots=True)
class FileState:
    """What the monitor knows of one file, under whatever name it has now."""

    path: PurePath
    created_here: bool = False
    changed_at: int = -1
    """Number of the last event that changed its bytes; -1 for never."""
    synced_to: int = -1
    """Events up to this number are synced."""
    synced_at: int = -1
    """Number of the last successful sync."""
    content_end: int = 0
    """End of the last byte written that was not zero: preallocated zeros are no content."""
    synced_content_end: int = 0

    @property
    def is_dirty(self) -> bool:
        return self.changed_at > self.synced_to


@dataclass(frozen=True, slots=True)
class DiskEvent:
    """One call, or one milestone declared with `note`."""

    number: int
    verb: Verb | None
    path: PurePath
    """For a rename, the target; for a milestone, its name."""
    source: PurePath | None = None
    offset: int = 0
    """Of a write; for a truncate, the new length."""
    about: tuple[PurePath, ...] = ()
    """The files a milestone is about; none means all."""
    contents: bytes | None = None
    """For a rename, the bytes of the file that takes the name."""

    def __str__(self) -> str:
        if self.verb is None:
            return f"note {self.path}"
        came = f" from {self.source}" if self.source is not None else ""
        return f"{self.verb.value} {self.path}{came}"


@dataclass(slots=True)
class DiskLedger:
    """Everything the conditions may read."""

    files: dict[PurePath, FileState] = field(default_factory=dict)
    pending_names: set[PurePath] = field(default_factory=set)
    """Names made or moved whose directory was not synced since."""

    def matching(self, pattern: str) -> Iterator[FileState]:
        return (state for path, state in self.files.items() if matches_path(pattern, path))

    def unsynced_name(self, path: PurePath) -> PurePath | None:
        """The first part of the path that a power loss could take away."""
        for part in (*reversed(path.parents), path):
            if part in self.pending_names:
                return part
        return None


class Condition(Protocol):
    def missing(self, ledger: DiskLedger, event: DiskEvent) -> str | None:
        """What is not true yet, in words, or None when all is well."""


@dataclass(frozen=True, slots=True)
class Step:
    """Calls of some verbs on paths like this."""

    verbs: frozenset[Verb]
    path: str = "*"

    @staticmethod
    def of(verbs: Verb | Iterable[Verb], path: str = "*") -> Step:
        return Step(as_verbs(verbs), path)

    def matches(self, event: DiskEvent) -> bool:
        return event.verb in self.verbs and matches_path(self.path, event.path)


@dataclass(frozen=True, slots=True)
class Milestone:
    """A moment the test declares with `OrderMonitor.note`, such as an ack."""

    name: str

    def matches(self, event: DiskEvent) -> bool:
        return event.verb is None and str(event.path) == self.name


@dataclass(frozen=True, slots=True)
class Rule:
    """`after` may happen only when `before` is true."""

    name: str
    reason: str
    before: Condition
    after: Step | Milestone


class FileScope(Enum):
    """Which files a rule compares with the file of the step."""

    ALL = "all"
    DIRECTORY = "directory"
    """In the same directory."""
    STEM = "stem"
    """In the same directory and with the same name up to the last dot."""

    def covers(self, one: PurePath, other: PurePath) -> bool:
        if self is FileScope.ALL:
            return True
        if one.parent != other.parent:
            return False
        return self is FileScope.DIRECTORY or one.stem == other.stem


@dataclass(frozen=True, slots=True)
class BytesSynced:
    """No file like this has bytes that were written and not synced."""

    pattern: str = "*"
    scope: FileScope = FileScope.ALL

    def missing(self, ledger: DiskLedger, event: DiskEvent) -> str | None:
        for state in ledger.matching(self.pattern):
            if event.about and state.path not in event.about:
                continue
            if event.verb is not None and not self.scope.covers(event.path, state.path):
                continue
            if state.is_dirty:
                return f"{state.path} has un-synced bytes"
        return None


@dataclass(frozen=True, slots=True)
class SourceSynced:
    """The file that is renamed has no un-synced bytes."""

    def missing(self, ledger: DiskLedger, event: DiskEvent) -> str | None:
        state = ledger.files.get(event.source or event.path)
        if state is not None and state.is_dirty:
            return f"{state.path} has un-synced bytes"
        return None


@dataclass(frozen=True, slots=True)
class NamesSynced:
    """No name like this was made or moved without its directory being synced since."""

    pattern: str = "*"

    def missing(self, ledger: DiskLedger, event: DiskEvent) -> str | None:
        for path in event.about or sorted(ledger.pending_names):
            lost = ledger.unsynced_name(path)
            if lost is not None and matches_path(self.pattern, path):
                return f"the name {lost} is not synced in its directory"
        return None


@dataclass(frozen=True, slots=True)
class OtherSyncedSince:
    """Another file like one of these was synced, name too, since this one was last changed."""

    patterns: tuple[str, ...]

    def missing(self, ledger: DiskLedger, event: DiskEvent) -> str | None:
        subject = ledger.files.get(event.path)
        changed_at = -1 if subject is None else subject.changed_at
        if subject is not None and subject.created_here and subject.content_end == 0:
            return None  # prepared and never used: it holds nothing to lose
        for pattern in self.patterns:
            for state in ledger.matching(pattern):
                if state.path == event.path or state.synced_at <= changed_at:
                    continue
                if ledger.unsynced_name(state.path) is None:
                    return None
        return f"nothing like {' or '.join(self.patterns)} was synced since its last change"


@dataclass(frozen=True, slots=True)
class NamedFileSynced:
    """The file that the renamed file names with its first word has a synced name."""

    def missing(self, ledger: DiskLedger, event: DiskEvent) -> str | None:
        words = (event.contents or b"").decode("utf-8", "replace").split()
        if not words:
            return "it names no file"
        named = event.path.parent / words[0]
        lost = ledger.unsynced_name(named)
        if lost is not None:
            return f"it names {named}, and the name {lost} is not synced in its directory"
        return None


@dataclass(frozen=True, slots=True)
class SyncedBytesKept:
    """A write or truncate does not touch content that was already synced."""

    def missing(self, ledger: DiskLedger, event: DiskEvent) -> str | None:
        state = ledger.files.get(event.path)
        if state is None or event.offset >= state.synced_content_end:
            return None
        return f"bytes {event.offset} to {state.synced_content_end} were already synced"


def synced_before_rename(path: str = "*") -> Rule:
    return Rule(
        "bytes before name",
        "a name that survives a power loss without its bytes is an empty or torn file",
        before=SourceSynced(),
        after=Step.of(Verb.RENAME, path),
    )


def names_before(milestone: str = "ack", path: str = "*") -> Rule:
    return Rule(
        f"names before {milestone}",
        "bytes in a file whose name is lost are lost too",
        before=NamesSynced(path),
        after=Milestone(milestone),
    )


def bytes_before(milestone: str = "ack", path: str = "*") -> Rule:
    return Rule(
        f"bytes before {milestone}",
        "what is promised must be on stable storage",
        before=BytesSynced(path),
        after=Milestone(milestone),
    )


def data_before_index(data: str, index: str, scope: FileScope = FileScope.DIRECTORY) -> Rule:
    return Rule(
        "data before index",
        "an index entry may only point at bytes that are there",
        before=BytesSynced(data, scope),
        after=Step.of(Verb.SYNC_DATA, index),
    )


def index_before_mark(index: str, mark: Step | Milestone | None = None) -> Rule:
    return Rule(
        "index before mark",
        "a mark says that everything before it can be read without the log",
        before=BytesSynced(index),
        after=mark if mark is not None else Milestone("mark"),
    )


def mark_before_trim(wal: str = "wal-*.log", current: str = "CURRENT") -> Rule:
    return Rule(
        "mark before trim",
        "a log file may only go when what replaces it is durable",
        before=OtherSyncedSince((wal, current)),
        after=Step.of(Verb.UNLINK, wal),
    )


def current_after_name(current: str = "CURRENT") -> Rule:
    return Rule(
        "name before CURRENT",
        "CURRENT must never name a file that a power loss takes away",
        before=NamedFileSynced(),
        after=Step.of(Verb.RENAME, current),
    )


def append_only(path: str) -> Rule:
    return Rule(
        "append only",
        "bytes that were synced may have been promised",
        before=SyncedBytesKept(),
        after=Step.of((Verb.WRITE, Verb.TRUNCATE), path),
    )


def log_rules(wal: str = "wal-*.log", current: str = "CURRENT") -> tuple[Rule, ...]:
    """The rules that hold for a write-ahead log by itself."""
    return (
        synced_before_rename(),
        current_after_name(current),
        mark_before_trim(wal, current),
        append_only(wal),
    )
