"""A disk on which a chosen call goes wrong.

`FaultDisk` wraps any disk. A table of `Fault`s says which call fails, is short or is slow; a
`CrashPoint` ends the "process" in the middle, after which every call raises. Without either it
only lists the calls, which is what a sweep counts first.

Calls are counted from 0, among those that match the verb and the path, so a sweep reads
`for nth in range(len(calls))`.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Final, Protocol, TypeVar, runtime_checkable

from headwater.disk.protocol import Buffer, DirectoryLock, Disk, File, OpenMode


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


Answer = TypeVar("Answer")


@runtime_checkable
class Forgetful(Protocol):
    """A file that can model a kernel which calls dirty pages clean after a failed sync."""

    def forget_unsynced(self) -> None: ...


class FaultDisk:
    """Implements `headwater.disk.Disk` around another one."""

    def __init__(
        self, inner: Disk, faults: Iterable[Fault] = (), *, crash: CrashPoint | None = None
    ) -> None:
        self.inner = inner
        self.faults = list(faults)
        self.crash_point = crash
        self.crashed: DiskCall | None = None
        """The call at which the process ended."""
        self.calls: list[DiskCall] = []
        self._lock = threading.Lock()
        self._crash_matches = 0
        self._open: dict[int, Callable[[], None]] = {}

    def add(self, fault: Fault) -> Fault:
        """Arm one more fault; its count starts now."""
        with self._lock:
            self.faults.append(fault)
        return fault

    def clear(self) -> None:
        """From now on everything works."""
        with self._lock:
            self.faults.clear()

    def calls_of(self, verbs: Verb | Iterable[Verb] = CHANGING_VERBS) -> list[DiskCall]:
        """The calls so far with these verbs: the length is the range of a sweep's `nth`."""
        wanted = as_verbs(verbs)
        with self._lock:
            return [call for call in self.calls if call.verb in wanted]

    def abandon(self) -> None:
        """What the kernel does when a process dies: close its files, drop its locks, sync nothing.

        For crashes on a real disk; a crash state of a FakeDisk starts unlocked anyway.
        """
        with self._lock:
            endings = list(self._open.values())
            self._open.clear()
        for end in endings:
            end()

    # The verbs of headwater.disk.Disk.

    def open(self, path: PurePath, mode: OpenMode) -> FaultFile:
        verb = Verb.CREATE if mode is OpenMode.CREATE else Verb.OPEN
        return FaultFile(self, self.call(verb, path, lambda: self._open_inner(path, mode)))

    def exists(self, path: PurePath) -> bool:
        return self.call(Verb.EXISTS, path, lambda: self.inner.exists(path))

    def is_directory(self, path: PurePath) -> bool:
        return self.call(Verb.IS_DIRECTORY, path, lambda: self.inner.is_directory(path))

    def list_directory(self, path: PurePath) -> list[str]:
        return self.call(Verb.LIST_DIRECTORY, path, lambda: self.inner.list_directory(path))

    def make_directory(self, path: PurePath) -> None:
        self.call(Verb.MAKE_DIRECTORY, path, lambda: self.inner.make_directory(path))

    def remove_directory(self, path: PurePath) -> None:
        self.call(Verb.REMOVE_DIRECTORY, path, lambda: self.inner.remove_directory(path))

    def rename(self, source: PurePath, target: PurePath) -> None:
        """A path pattern is matched with the target."""
        detail = f" from {source.name}"
        self.call(Verb.RENAME, target, lambda: self.inner.rename(source, target), detail)

    def unlink(self, path: PurePath) -> None:
        self.call(Verb.UNLINK, path, lambda: self.inner.unlink(path))

    def sync_directory(self, path: PurePath) -> None:
        self.call(Verb.SYNC_DIRECTORY, path, lambda: self.inner.sync_directory(path))

    def free_bytes(self, path: PurePath) -> int:
        return self.call(Verb.FREE_BYTES, path, lambda: self.inner.free_bytes(path))

    def lock_directory(self, path: PurePath) -> FaultDirectoryLock:
        lock = self.call(Verb.LOCK_DIRECTORY, path, lambda: self._lock_inner(path))
        return FaultDirectoryLock(self, lock, path)

    # Used by the open files of this disk.

    def call(
        self,
        verb: Verb,
        path: PurePath,
        action: Callable[[], Answer],
        detail: str = "",
        failing: Callable[[Fault], None] | None = None,
    ) -> Answer:
        """Make one call, or what the table says instead of it.

        `failing` is given the fault ahead of its error, for faults that leave something behind.
        """
        fault, crash = self.enter(verb, path, detail)
        if fault is not None and fault.number is not None:
            if failing is not None:
                failing(fault)
            raise OSError(fault.number, os.strerror(fault.number), str(path))
        answer = action()
        if crash is not None:
            raise SimulatedCrash(str(crash))
        return answer

    def enter(
        self, verb: Verb, path: PurePath, detail: str
    ) -> tuple[Fault | None, DiskCall | None]:
        """Count a call. Returns the fault that strikes it, and itself if the crash follows it."""
        with self._lock:
            if self.crashed is not None:
                raise SimulatedCrash(f"the process ended at {self.crashed}")
            call = DiskCall(len(self.calls), verb, path, detail)
            self.calls.append(call)
            crash = self._crash_at(call)
            struck = [fault for fault in self.faults if fault.strikes(verb, path)]
        if crash is When.BEFORE:
            raise SimulatedCrash(str(call))
        for fault in struck:
            if fault.before is not None:
                fault.before()
        # A fault that fails the call wins over one that only shortens or delays it.
        struck.sort(key=lambda fault: fault.number is None)
        return (struck[0] if struck else None), (call if crash is When.AFTER else None)

    def let_go(self, held: object) -> None:
        with self._lock:
            self._open.pop(id(held), None)

    def _open_inner(self, path: PurePath, mode: OpenMode) -> File:
        file = self.inner.open(path, mode)
        self._hold(file, file.close)
        return file

    def _lock_inner(self, path: PurePath) -> DirectoryLock:
        lock = self.inner.lock_directory(path)
        self._hold(lock, lock.release)
        return lock

    def _hold(self, held: object, end: Callable[[], None]) -> None:
        with self._lock:
            self._open[id(held)] = end

    def _crash_at(self, call: DiskCall) -> When | None:
        point = self.crash_point
        if point is None or not point.matches(call):
            return None
        position = self._crash_matches
        self._crash_matches += 1
        if position != point.nth:
            return None
        self.crashed = call
        return point.when


class FaultFile:
    """Implements `headwater.disk.File`."""

    def __init__(self, disk: FaultDisk, inner: File) -> None:
        self._disk = disk
        self.inner = inner

    @property
    def path(self) -> PurePath:
        return self.inner.path

    def size(self) -> int:
        return self._disk.call(Verb.SIZE, self.path, self.inner.size)

    def read(self, offset: int, length: int) -> bytes:
        detail = f"[{offset}:{offset + length}]"
        return self._disk.call(
            Verb.READ, self.path, lambda: self.inner.read(offset, length), detail
        )

    def view(self) -> memoryview:
        return self._disk.call(Verb.VIEW, self.path, self.inner.view)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> int:
        total = sum(map(len, buffers))
        detail = f"[{offset}:{offset + total}]"
        fault, crash = self._disk.enter(Verb.WRITE, self.path, detail)
        taken: Sequence[Buffer] = buffers
        if fault is not None and fault.short_bytes is not None:
            taken = [b"".join(buffers)[: fault.short_bytes]]
        done = 0
        if fault is None or fault.number is None or fault.short_bytes is not None:
            done = self.inner.write(offset, taken)
        if fault is not None and fault.number is not None:
            raise OSError(fault.number, os.strerror(fault.number), str(self.path))
        if crash is not None:
            raise SimulatedCrash(str(crash))
        return done

    def sync_data(self) -> None:
        self._disk.call(
            Verb.SYNC_DATA, self.path, self.inner.sync_data, failing=self._forget_unsynced
        )

    def truncate(self, length: int) -> None:
        detail = f" to {length}"
        self._disk.call(Verb.TRUNCATE, self.path, lambda: self.inner.truncate(length), detail)

    def allocate(self, length: int) -> None:
        detail = f" to {length}"
        self._disk.call(Verb.ALLOCATE, self.path, lambda: self.inner.allocate(length), detail)

    def close(self) -> None:
        # Linux closes the descriptor even when close reports an error.
        self._disk.call(Verb.CLOSE, self.path, self._close, failing=lambda _: self._close())

    def _close(self) -> None:
        self._disk.let_go(self.inner)
        self.inner.close()

    def _forget_unsynced(self, fault: Fault) -> None:
        if not fault.clean_after_error:
            return
        if not isinstance(self.inner, Forgetful):
            raise TypeError("clean_after_error needs a FakeDisk under the FaultDisk")
        self.inner.forget_unsynced()


class FaultDirectoryLock:
    """Implements `headwater.disk.DirectoryLock`."""

    def __init__(self, disk: FaultDisk, inner: DirectoryLock, path: PurePath) -> None:
        self._disk = disk
        self._inner = inner
        self._path = path

    def release(self) -> None:
        # Releasing is closing a descriptor: it happens even when an error is reported.
        self._disk.call(Verb.RELEASE, self._path, self._release, failing=lambda _: self._release())

    def _release(self) -> None:
        self._disk.let_go(self._inner)
        self._inner.release()
