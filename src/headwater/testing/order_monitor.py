"""A disk that lets every call through and watches their order.

Wrap any disk, run anything, call `check()` at the end. Violations are collected rather than
raised at once, so that code which swallows errors cannot hide one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from headwater.disk.protocol import Buffer, DirectoryLock, Disk, File, OpenMode
from headwater.testing.faults import Verb
from headwater.testing.order_rules import DiskEvent, DiskLedger, FileState, Rule, log_rules

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
