"""What was called on a fake disk, one entry per verb, in order.

The trace is the input of every crash test: a crash point is a position in it, and what survives
a power loss is decided from the entries before that position (`crash_plan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Final

ROOT: Final = 1
"""Number of the inode that `/` names."""


class OperationKind(Enum):
    WRITE = "write"
    TRUNCATE = "truncate"
    ALLOCATE = "allocate"
    SYNC_DATA = "sync_data"
    FORGET = "forget"
    """A failed sync after which the kernel calls the pages clean: nothing later writes them."""
    CREATE = "create"
    RENAME = "rename"
    UNLINK = "unlink"
    MAKE_DIRECTORY = "make_directory"
    REMOVE_DIRECTORY = "remove_directory"
    SYNC_DIRECTORY = "sync_directory"
    PLANT = "plant"
    """A file put there by the test, durable at once, as if it had always been there."""
    PLANT_DIRECTORY = "plant_directory"


DATA_KINDS: Final = frozenset({OperationKind.WRITE, OperationKind.TRUNCATE, OperationKind.ALLOCATE})


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry. Inodes are numbers, so that a rename does not change what a write wrote to."""

    kind: OperationKind
    path: PurePath
    inode: int
    offset: int = 0
    """Of a write; for truncate and allocate, the length requested."""
    data: bytes = b""
    directory: int = 0
    name: str = ""
    target_path: PurePath | None = None
    target_directory: int = 0
    target_name: str = ""

    def __str__(self) -> str:
        kind = self.kind
        if kind is OperationKind.WRITE:
            return f"write {self.path.name}[{self.offset}:{self.offset + len(self.data)}]"
        if kind in DATA_KINDS:
            return f"{kind.value} {self.path.name} to {self.offset}"
        if self.target_path is not None:
            return f"rename {self.path.name} to {self.target_path.name}"
        return f"{kind.value} {self.path.name or '/'}"


@dataclass(frozen=True, slots=True)
class Image:
    """Everything on a disk at one moment. Never changed once made, so states share its bytes."""

    contents: Mapping[int, bytes]
    directories: Mapping[int, Mapping[str, int]]

    @staticmethod
    def empty() -> Image:
        return Image({}, {ROOT: {}})

    def reachable(self) -> Image:
        """Only what a name leads to: the rest is what a file system check would free."""
        contents: dict[int, bytes] = {}
        directories: dict[int, Mapping[str, int]] = {}
        waiting = [ROOT]
        while waiting:
            directory = waiting.pop()
            if directory in directories:
                continue
            names = directories[directory] = self.directories[directory]
            for inode in names.values():
                if inode in self.directories:
                    waiting.append(inode)
                else:
                    contents[inode] = self.contents.get(inode, b"")
        return Image(contents, directories)


def apply_to_bytes(content: bytearray, operation: Operation) -> None:
    """Carry out one data operation on the bytes of a file."""
    offset = operation.offset
    if operation.kind is OperationKind.WRITE:
        if not operation.data:
            return
        if offset > len(content):
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(operation.data)] = operation.data
    elif operation.kind is OperationKind.TRUNCATE and offset < len(content):
        del content[offset:]
    elif offset > len(content):
        content.extend(bytes(offset - len(content)))
