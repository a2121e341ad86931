"""A disk in memory that knows what a power loss could leave of it.

`FakeDisk` behaves like `PosixDisk` (one conformance suite holds both) and keeps a trace of every
call that changes something. `crash_states` turns the trace into fresh disks, one per way the
power could have failed; each carries a `label` saying which. States share unchanged bytes.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath, PurePosixPath
from typing import Final

from headwater.core.errors import DirectoryInUseError
from headwater.disk.protocol import Buffer, OpenMode
from headwater.testing.crash_plan import (
    EVERYTHING,
    KILL,
    POWER_LOSS,
    CrashKind,
    CrashPlan,
    PowerLossModel,
    cases,
)
from headwater.testing.fake_names import Names, os_error
from headwater.testing.trace import ROOT, Image, Operation, OperationKind, apply_to_bytes

LOCK_NAME: Final = "LOCK"


class FakeDisk:
    """Implements `headwater.disk.Disk`. Safe to use from several threads."""

    def __init__(
        self,
        directories: Iterable[str | PurePath] = (),
        *,
        capacity_bytes: int | None = None,
        image: Image | None = None,
        label: str = "",
        crash_kind: CrashKind | None = None,
        crash_point: int = 0,
    ) -> None:
        self.label = label
        self.crash_kind = crash_kind
        """For a crash state: which family of the plan it belongs to."""
        self.crash_point = crash_point
        """For a crash state: the position in the parent's trace at which the power failed."""
        self.capacity_bytes = capacity_bytes
        self.lock = threading.RLock()
        self.trace: list[Operation] = []
        self.opens: dict[int, int] = {}
        self._locked: set[int] = set()
        self._base = image if image is not None else Image.empty()
        self.contents: dict[int, bytes | bytearray] = dict(self._base.contents)
        self.names = Names(self._base.directories)
        self._next_inode = max([ROOT, *self.contents, *self._base.directories]) + 1
        for directory in directories:
            self.plant_directory(directory)
        self.settle()

    def __repr__(self) -> str:
        return f"<FakeDisk {self.label or 'live'}: {len(self.trace)} operations>"

    # The verbs of headwater.disk.Disk.

    def open(self, path: PurePath, mode: OpenMode) -> FakeFile:
        with self.lock:
            if mode is OpenMode.CREATE:
                inode = self._create(path)
            else:
                inode = self.names.find(path)
                if self.names.is_directory(inode):
                    raise os_error(errno.EISDIR, path)
            self.opens[inode] = self.opens.get(inode, 0) + 1
            return FakeFile(self, path, inode, writable=mode is not OpenMode.READ)

    def exists(self, path: PurePath) -> bool:
        with self.lock:
            return self.names.lookup(path) is not None

    def is_directory(self, path: PurePath) -> bool:
        with self.lock:
            inode = self.names.lookup(path)
            return inode is not None and self.names.is_directory(inode)

    def list_directory(self, path: PurePath) -> list[str]:
        with self.lock:
            return sorted(self.names.directory(path))

    def make_directory(self, path: PurePath) -> None:
        with self.lock:
            inode = self.names.lookup(path)
            if inode is not None:
                if not self.names.is_directory(inode):
                    raise os_error(errno.EEXIST, path)
                return
            parent, name = self.names.parent(path)
            inode = self._new_inode()
            self.names.add_directory(inode)
            self.names.add(parent, name, inode)
            self._note(OperationKind.MAKE_DIRECTORY, path, inode, directory=parent, name=name)

    def remove_directory(self, path: PurePath) -> None:
        with self.lock:
            inode = self.names.find(path)
            if self.names.directory(path):
                raise os_error(errno.ENOTEMPTY, path)
            parent, name = self.names.parent(path)
            self.names.remove(parent, name)
            self._note(OperationKind.REMOVE_DIRECTORY, path, inode, directory=parent, name=name)

    def rename(self, source: PurePath, target: PurePath) -> None:
        with self.lock:
            inode = self.names.find(source)
            directory, name = self.names.parent(source)
            target_directory, target_name = self.names.parent(target)
            replaced = self.names.lookup(target)
            if replaced == inode:
                return
            self.names.check_rename(inode, replaced, source, target)
            self.names.remove(directory, name)
            self.names.add(target_directory, target_name, inode)
            self.trace.append(
                Operation(
                    OperationKind.RENAME,
                    source,
                    inode,
                    directory=directory,
                    name=name,
                    target_path=target,
                    target_directory=target_directory,
                    target_name=target_name,
                )
            )
            if replaced is not None:
                self.free_if_unused(replaced)

    def unlink(self, path: PurePath) -> None:
        with self.lock:
            inode = self.names.find(path)
            if self.names.is_directory(inode):
                raise os_error(errno.EISDIR, path)
            parent, name = self.names.parent(path)
            self.names.remove(parent, name)
            self._note(OperationKind.UNLINK, path, inode, directory=parent, name=name)
            self.free_if_unused(inode)

    def sync_directory(self, path: PurePath) -> None:
        with self.lock:
            self.names.directory(path)
            self._note(OperationKind.SYNC_DIRECTORY, path, self.names.find(path))

    def free_bytes(self, path: PurePath) -> int:
        with self.lock:
            self.names.find(path)
            return self.room()

    def lock_directory(self, path: PurePath) -> FakeDirectoryLock:
        with self.lock:
            self.names.directory(path)
            inode = self.names.find(path)
            if inode in self._locked:
                raise DirectoryInUseError(
                    f"{path} is in use by another Headwater (process {os.getpid()}); "
                    "stop it, or choose another data directory"
                )
            # Durable at once: whether the name of an empty lock file survives changes nothing,
            # and as a pending effect it would double the states of every sweep.
            if not self.exists(path / LOCK_NAME):
                self.write_file(path / LOCK_NAME, f"{os.getpid()}\n".encode())
            self._locked.add(inode)
            return FakeDirectoryLock(self, inode)

    # Looking, planting and damaging.

    @property
    def point(self) -> int:
        """The position in the trace: how many operations have taken effect."""
        return len(self.trace)

    def files(self) -> dict[PurePath, bytes]:
        """Every file and its bytes, by path."""
        with self.lock:
            entries = sorted(self.names.files())
            return {path: bytes(self.contents.get(inode, b"")) for path, inode in entries}

    def write_file(self, path: str | PurePath, data: Buffer) -> None:
        """Plant a file: durable at once, name and bytes, as if it had always been there."""
        path = PurePosixPath(path)
        with self.lock:
            self.plant_directory(path.parent)
            inode = self.names.lookup(path)
            if inode is None:
                inode = self._new_inode()
            elif self.names.is_directory(inode):
                raise os_error(errno.EISDIR, path)
            parent, name = self.names.parent(path)
            self.names.add(parent, name, inode)
            self.contents[inode] = bytes(data)
            self._note(OperationKind.PLANT, path, inode, 0, bytes(data), parent, name)

    def plant_directory(self, path: str | PurePath) -> None:
        """Plant a directory and its parents, durable at once."""
        path = PurePosixPath(path)
        with self.lock:
            for each in [*reversed(path.parents), path]:
                inode = self.names.lookup(each)
                if inode == ROOT:
                    continue
                if inode is None:
                    inode = self._new_inode()
                    self.names.add_directory(inode)
                elif not self.names.is_directory(inode):
                    raise os_error(errno.ENOTDIR, each)
                parent, name = self.names.parent(each)
                self.names.add(parent, name, inode)
                kind = OperationKind.PLANT_DIRECTORY
                self._note(kind, each, inode, directory=parent, name=name)

    def damage(self, path: str | PurePath, offset: int, data: Buffer) -> None:
        """Change bytes on the platter behind everybody's back."""
        path = PurePosixPath(path)
        with self.lock:
            content = bytearray(self.contents[self.names.find(path)])
            if offset < 0 or offset + len(data) > len(content):
                raise ValueError(f"{path} has {len(content)} bytes; no room at {offset}")
            content[offset : offset + len(data)] = data
            self.write_file(path, content)

    def truncate_file(self, path: str | PurePath, length: int) -> None:
        """Cut a file (or grow it with zeros) on the platter behind everybody's back."""
        path = PurePosixPath(path)
        with self.lock:
            content = bytes(self.contents[self.names.find(path)])
            self.write_file(path, content[:length] + bytes(max(length - len(content), 0)))

    def settle(self) -> None:
        """Make everything durable and forget the trace: crash points count from here."""
        with self.lock:
            self._base = self.snapshot()
            self.trace = []

    # Copies and crashes.

    def snapshot(self) -> Image:
        """Everything as it is now, durable or not. `FakeDisk(image=...)` boots from it."""
        with self.lock:
            frozen: dict[int, bytes] = {}
            for inode, content in self.contents.items():
                # Both sides keep the same bytes; the next write makes its own copy.
                frozen[inode] = self.contents[inode] = bytes(content)
            return Image(frozen, self.names.frozen())

    def clone(self) -> FakeDisk:
        """A second disk with the same files, trace and pending effects; nothing open or locked."""
        with self.lock:
            twin = FakeDisk(
                image=self.snapshot(),
                capacity_bytes=self.capacity_bytes,
                label=self.label,
                crash_kind=self.crash_kind,
                crash_point=self.crash_point,
            )
            twin._base = self._base
            twin._next_inode = self._next_inode
            twin.trace = list(self.trace)
            return twin

    def crash_states(
        self, at: int | None = None, plan: CrashPlan = EVERYTHING
    ) -> Iterator[FakeDisk]:
        """Fresh, unlocked disks: what could be left after a crash at `at`, or at every point.

        Point k is the moment after k operations of the trace took effect and before the next.
        """
        with self.lock:
            trace = tuple(self.trace)
        if at is not None and not 0 <= at <= len(trace):
            raise ValueError(f"the trace has points 0 to {len(trace)}, not {at}")
        model, alive = PowerLossModel(self._base), PowerLossModel(self._base)
        for point in range(len(trace) + 1 if at is None else at + 1):
            if point:
                operation = trace[point - 1]
                model.step(operation)
                if operation.kind is not OperationKind.FORGET:
                    alive.step(operation)  # a running machine still reads the pages
            if at is None or point == at:
                where = f"crash at {point}/{len(trace)}"
                where += f" after {trace[point - 1]}" if point else ""
                yield from self._states(model, alive, plan, where)

    def after_power_loss(self) -> FakeDisk:
        """The disk if the power failed now and nothing un-synced survived."""
        return next(self.crash_states(self.point, POWER_LOSS))

    def after_kill(self) -> FakeDisk:
        """The disk if the process was killed now."""
        return next(self.crash_states(self.point, KILL))

    def _states(
        self, model: PowerLossModel, alive: PowerLossModel, plan: CrashPlan, where: str
    ) -> Iterator[FakeDisk]:
        point, capacity = model.point, self.capacity_bytes
        if CrashKind.KILL in plan.kinds:
            yield FakeDisk(
                image=alive.image(alive.pending),
                label=f"{where}: process killed",
                crash_kind=CrashKind.KILL,
                crash_point=point,
                capacity_bytes=capacity,
            )
        for kind, label, survivors in cases(model, plan):
            yield FakeDisk(
                image=model.image(survivors),
                label=f"{where}: {label}",
                crash_kind=kind,
                crash_point=point,
                capacity_bytes=capacity,
            )

    # Used by the open files of this disk.

    def room(self) -> int:
        """Bytes that still fit. Without a capacity there is always plenty."""
        if self.capacity_bytes is None:
            return 1 << 40
        return max(self.capacity_bytes - sum(map(len, self.contents.values())), 0)

    def free_if_unused(self, inode: int) -> None:
        """Give back the space of a file that has neither a name nor an open handle."""
        if not self.opens.get(inode) and not self.names.mentions(inode):
            self.contents.pop(inode, None)

    def unlock(self, inode: int) -> None:
        with self.lock:
            self._locked.discard(inode)

    def _create(self, path: PurePath) -> int:
        parent, name = self.names.parent(path)
        if self.names.lookup(path) is not None:
            raise os_error(errno.EEXIST, path)
        inode = self._new_inode()
        self.contents[inode] = b""
        self.names.add(parent, name, inode)
        self._note(OperationKind.CREATE, path, inode, directory=parent, name=name)
        return inode

    def _new_inode(self) -> int:
        inode = self._next_inode
        self._next_inode += 1
        return inode

    def _note(
        self,
        kind: OperationKind,
        path: PurePath,
        inode: int,
        offset: int = 0,
        data: bytes = b"",
        directory: int = 0,
        name: str = "",
    ) -> None:
        self.trace.append(Operation(kind, path, inode, offset, data, directory, name))


class FakeFile:
    """Implements `headwater.disk.File`. Bound to the inode: survives rename and unlink."""

    def __init__(self, disk: FakeDisk, path: PurePath, inode: int, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._writable = writable
        self._closed = False

    @property
    def path(self) -> PurePath:
        return self._path

    def size(self) -> int:
        with self._disk.lock:
            return len(self._content())

    def read(self, offset: int, length: int) -> bytes:
        with self._disk.lock:
            content = self._content()
            if offset < 0:
                raise os_error(errno.EINVAL, self._path)
            return bytes(content[offset : offset + length])

    def view(self) -> memoryview:
        with self._disk.lock:
            return memoryview(bytes(self._content()))

    def write(self, offset: int, buffers: Sequence[Buffer]) -> int:
        """Takes what fits: a disk that fills up in the middle shows as a short write."""
        with self._disk.lock:
            content = self._own_content(errno.EBADF)
            if offset < 0:
                raise os_error(errno.EINVAL, self._path)
            data = b"".join(buffers)
            if not data:
                return 0
            growth = offset + len(data) - len(content)
            if growth > 0 and growth > self._disk.room():
                data = data[: max(len(data) - (growth - self._disk.room()), 0)]
                if not data:
                    raise os_error(errno.ENOSPC, self._path)
            self._apply(OperationKind.WRITE, content, offset, data)
            return len(data)

    def sync_data(self) -> None:
        with self._disk.lock:
            self._content()
            self._note(OperationKind.SYNC_DATA)

    def truncate(self, length: int) -> None:
        with self._disk.lock:
            content = self._own_content(errno.EINVAL)
            if length < 0:
                raise os_error(errno.EINVAL, self._path)
            self._apply(OperationKind.TRUNCATE, content, length)

    def allocate(self, length: int) -> None:
        """A disk without room gives what it has before it refuses, as ext4 does."""
        with self._disk.lock:
            content = self._own_content(errno.EBADF)
            if length <= 0:
                raise os_error(errno.EINVAL, self._path)
            possible = min(length, len(content) + self._disk.room())
            self._apply(OperationKind.ALLOCATE, content, possible)
            if possible < length:
                raise os_error(errno.ENOSPC, self._path)

    def close(self) -> None:
        with self._disk.lock:
            if self._closed:
                return
            self._closed = True
            self._disk.opens[self._inode] -= 1
            self._disk.free_if_unused(self._inode)

    def forget_unsynced(self) -> None:
        """What the kernel does after a failed fsync: the pages are called clean, never written.

        Reading still shows the bytes, and a later sync succeeds without making them durable.
        """
        with self._disk.lock:
            self._note(OperationKind.FORGET)

    def _content(self) -> bytes | bytearray:
        if self._closed:
            raise os_error(errno.EBADF, self._path)
        return self._disk.contents[self._inode]

    def _own_content(self, refusal: int) -> bytearray:
        """The bytes for changing them: copied first while another disk shares them."""
        content = self._content()
        if not self._writable:
            raise os_error(refusal, self._path)
        if not isinstance(content, bytearray):
            content = self._disk.contents[self._inode] = bytearray(content)
        return content

    def _apply(
        self, kind: OperationKind, content: bytearray, offset: int, data: bytes = b""
    ) -> None:
        self._note(kind, offset, data)
        apply_to_bytes(content, self._disk.trace[-1])

    def _note(self, kind: OperationKind, offset: int = 0, data: bytes = b"") -> None:
        self._disk.trace.append(Operation(kind, self._path, self._inode, offset, data))


class FakeDirectoryLock:
    """Implements `headwater.disk.DirectoryLock`."""

    def __init__(self, disk: FakeDisk, inode: int) -> None:
        self._disk = disk
        self._inode: int | None = inode

    def release(self) -> None:
        if self._inode is not None:
            inode, self._inode = self._inode, None
            self._disk.unlock(inode)
