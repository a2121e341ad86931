"""A disk that lets every call through and watches their order, by rules that are data.

Wrap any disk, run anything, call `check()` at the end. Violations are collected rather than
raised at once, so that code which swallows errors cannot hide one.

A rule names the step it watches (`after`), what must be true by then (`before`), and why. The
ready rules below are the ones a log depends on: bytes before names, data before index, index
before mark, mark before trim, and nothing overwritten that was promised.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from typing import Protocol

from headwater.disk.protocol import Buffer, DirectoryLock, Disk, File, OpenMode
from headwater.testing.fault_disk import Verb, as_verbs, matches_path


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


CURRENT_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class OrderViolation:
    rule: Rule
    event: DiskEvent
    missing: str

    def __str__(self) -> str:
        return f"[{self.rule.name}] {self.event}: {self.missing}; {self.rule.reason}"


class OrderViolationError(AssertionError):
    """Disk calls came in an order that some power loss would punish."""

    def __init__(self, violations: Sequence[OrderViolation]) -> None:
        self.violations = tuple(violations)
        super().__init__("\n".join(["wrong order of disk calls:", *map(str, violations)]))


class OrderMonitor:
    """Implements `headwater.disk.Disk` around another one."""

    def __init__(self, inner: Disk, rules: Iterable[Rule] | None = None) -> None:
        self.inner = inner
        self.rules = tuple(log_rules() if rules is None else rules)
        self.violations: list[OrderViolation] = []
        self.ledger = DiskLedger()
        self.lock = threading.RLock()
        self._event_count = 0

    def note(self, milestone: str, *about: PurePath) -> None:
        """Declare a moment that rules speak of, such as an ack, and the files it rests on."""
        self.watch(None, PurePath(milestone), about=about)

    def check(self) -> None:
        """Raise OrderViolationError when anything came in the wrong order."""
        with self.lock:
            if self.violations:
                raise OrderViolationError(self.violations)

    # The verbs of headwater.disk.Disk.

    def open(self, path: PurePath, mode: OpenMode) -> MonitoredFile:
        created = mode is OpenMode.CREATE
        self.watch(Verb.CREATE if created else Verb.OPEN, path)
        file = self.inner.open(path, mode)
        with self.lock:
            if created:
                self.ledger.files[path] = FileState(path, created_here=True)
                self.ledger.pending_names.add(path)
            state = self.ledger.files.setdefault(path, FileState(path))
        return MonitoredFile(self, file, state)

    def exists(self, path: PurePath) -> bool:
        return self.inner.exists(path)

    def is_directory(self, path: PurePath) -> bool:
        return self.inner.is_directory(path)

    def list_directory(self, path: PurePath) -> list[str]:
        return self.inner.list_directory(path)

    def make_directory(self, path: PurePath) -> None:
        existed = self.inner.exists(path)
        self.watch(Verb.MAKE_DIRECTORY, path)
        self.inner.make_directory(path)
        if not existed:
            with self.lock:
                self.ledger.pending_names.add(path)

    def remove_directory(self, path: PurePath) -> None:
        self.watch(Verb.REMOVE_DIRECTORY, path)
        self.inner.remove_directory(path)
        with self.lock:
            self.ledger.pending_names.discard(path)

    def rename(self, source: PurePath, target: PurePath) -> None:
        contents = self._peek(source)
        self.watch(Verb.RENAME, target, source=source, contents=contents)
        self.inner.rename(source, target)
        with self.lock:
            self._move_names(source, target)

    def unlink(self, path: PurePath) -> None:
        self.watch(Verb.UNLINK, path)
        self.inner.unlink(path)
        with self.lock:
            self.ledger.files.pop(path, None)
            self.ledger.pending_names.discard(path)

    def sync_directory(self, path: PurePath) -> None:
        self.watch(Verb.SYNC_DIRECTORY, path)
        with self.lock:
            covered = {name for name in self.ledger.pending_names if name.parent == path}
        self.inner.sync_directory(path)
        with self.lock:
            self.ledger.pending_names -= covered

    def free_bytes(self, path: PurePath) -> int:
        return self.inner.free_bytes(path)

    def lock_directory(self, path: PurePath) -> DirectoryLock:
        return self.inner.lock_directory(path)

    # Used by the open files of this disk.

    def watch(
        self,
        verb: Verb | None,
        path: PurePath,
        *,
        source: PurePath | None = None,
        offset: int = 0,
        about: tuple[PurePath, ...] = (),
        contents: bytes | None = None,
    ) -> int:
        """Number the event and hold it against the rules, before it takes effect."""
        with self.lock:
            number = self._event_count
            self._event_count += 1
            event = DiskEvent(number, verb, path, source, offset, about, contents)
            for rule in self.rules:
                if rule.after.matches(event):
                    missing = rule.before.missing(self.ledger, event)
                    if missing is not None:
                        self.violations.append(OrderViolation(rule, event, missing))
            return number

    def _peek(self, path: PurePath) -> bytes | None:
        """The bytes of a small file about to take another name; None when it is no file."""
        try:
            if self.inner.is_directory(path):
                return None
            file = self.inner.open(path, OpenMode.READ)
        except OSError:
            return None  # the rename itself will say what is wrong
        try:
            return file.read(0, CURRENT_BYTES_MAX)
        finally:
            file.close()

    def _move_names(self, source: PurePath, target: PurePath) -> None:
        ledger = self.ledger
        for path in [path for path in ledger.files if path.is_relative_to(source)]:
            state = ledger.files.pop(path)
            state.path = target / path.relative_to(source)
            ledger.files[state.path] = state
        for path in [path for path in ledger.pending_names if path.is_relative_to(source)]:
            ledger.pending_names.remove(path)
            ledger.pending_names.add(target / path.relative_to(source))
        ledger.pending_names.add(target)


class MonitoredFile:
    """Implements `headwater.disk.File`."""

    def __init__(self, disk: OrderMonitor, inner: File, state: FileState) -> None:
        self._disk = disk
        self._inner = inner
        self._state = state

    @property
    def path(self) -> PurePath:
        return self._inner.path

    def size(self) -> int:
        return self._inner.size()

    def read(self, offset: int, length: int) -> bytes:
        return self._inner.read(offset, length)

    def view(self) -> memoryview:
        return self._inner.view()

    def write(self, offset: int, buffers: Sequence[Buffer]) -> int:
        self._change(Verb.WRITE, offset)
        done = self._inner.write(offset, buffers)
        end = _content_end(offset, b"".join(buffers)[:done])
        with self._disk.lock:
            self._state.content_end = max(self._state.content_end, end)
        return done

    def sync_data(self) -> None:
        state = self._state
        number = self._disk.watch(Verb.SYNC_DATA, state.path)
        with self._disk.lock:
            # Bytes written by another thread while the sync runs are not covered by it.
            content_end = state.content_end
        self._inner.sync_data()
        with self._disk.lock:
            state.synced_at = state.synced_to = max(state.synced_to, number)
            state.synced_content_end = max(state.synced_content_end, content_end)

    def truncate(self, length: int) -> None:
        self._change(Verb.TRUNCATE, length)
        self._inner.truncate(length)
        with self._disk.lock:
            state = self._state
            state.content_end = min(state.content_end, length)
            state.synced_content_end = min(state.synced_content_end, length)

    def allocate(self, length: int) -> None:
        self._change(Verb.ALLOCATE, length)
        self._inner.allocate(length)

    def close(self) -> None:
        self._inner.close()

    def _change(self, verb: Verb, offset: int) -> None:
        """Dirty from before the call: one that fails may still have changed something."""
        number = self._disk.watch(verb, self._state.path, offset=offset)
        with self._disk.lock:
            self._state.changed_at = number


def _content_end(offset: int, data: bytes) -> int:
    content = data.rstrip(b"\0")
    return offset + len(content) if content else 0
