"""What may be on the platter at one point of a trace.

The rules are those of a journaling file system, read as pessimistically as POSIX allows:

- `sync_data` makes the bytes and the size of one inode durable, and nothing else: not its name.
- `sync_directory` makes the names in that directory durable, and nothing else: not the bytes of
  the files, not the name of the directory itself.
- Everything later is *pending*: each pending effect may have reached the platter or not,
  independently of the others and of the order in which they were asked for.
- A rename within a directory is one effect: its target is the old file or the new, never
  neither. A rename between directories may leave both names, never none.
- An inode that no durable name leads to is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.testing.trace import DATA_KINDS, Image, Operation, OperationKind, apply_to_bytes


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that survives a power loss or does not."""

    index: int
    operation: Operation
    directory: int = 0
    """The directory whose names change; 0 when bytes change."""
    remove: str = ""
    add: str = ""
    needs: int = -1
    """Trace index of the effect without which this one cannot be durable."""

    @property
    def is_data(self) -> bool:
        return self.directory == 0

    def __str__(self) -> str:
        return f"#{self.index} {self.operation}"


class PowerLossModel:
    """Follows a trace and knows at each point what is durable and what is pending."""

    def __init__(self, base: Image) -> None:
        self.point = 0
        self.pending: list[Effect] = []
        self._contents: dict[int, bytes] = dict(base.contents)
        self._directories: dict[int, Mapping[str, int]] = dict(base.directories)

    def step(self, operation: Operation) -> None:
        """Take in the next entry of the trace."""
        index = self.point
        self.point += 1
        kind = operation.kind
        if kind in DATA_KINDS:
            self.pending.append(Effect(index, operation))
        elif kind is OperationKind.SYNC_DATA:
            self._resolve_bytes(operation.inode)
        elif kind is OperationKind.FORGET:
            self._drop_bytes(operation.inode)
        elif kind is OperationKind.SYNC_DIRECTORY:
            self._resolve_names(operation.inode)
        elif kind in (OperationKind.PLANT, OperationKind.PLANT_DIRECTORY):
            self._plant(operation)
        else:
            if kind is OperationKind.MAKE_DIRECTORY:
                self._directories[operation.inode] = {}
            self.pending.extend(name_effects(index, operation))

    def durable_bytes(self, inode: int) -> bytes:
        return self._contents.get(inode, b"")

    def image(self, survivors: Sequence[Effect]) -> Image:
        """The disk after a power loss that only these effects survived, in this order."""
        if not survivors:
            return Image(self._contents, self._directories).reachable()
        contents = dict(self._contents)
        directories = dict(self._directories)
        changed: dict[int, bytearray] = {}
        lost_links = {effect.index for effect in self.pending if effect.add}
        lost_links -= {effect.index for effect in survivors if effect.add}
        for effect in survivors:
            if effect.needs in lost_links:
                continue
            if effect.is_data:
                inode = effect.operation.inode
                content = changed.get(inode)
                if content is None:
                    content = changed[inode] = bytearray(contents.get(inode, b""))
                apply_to_bytes(content, effect.operation)
            else:
                _apply_to_names(directories, effect)
        for inode, content in changed.items():
            contents[inode] = bytes(content)
        return Image(contents, directories).reachable()

    def _resolve_bytes(self, inode: int) -> None:
        mine = [effect for effect in self.pending if _writes(effect, inode)]
        if not mine:
            self._contents.setdefault(inode, b"")
            return
        content = bytearray(self._contents.get(inode, b""))
        for effect in mine:
            apply_to_bytes(content, effect.operation)
        self._contents[inode] = bytes(content)
        self._drop_bytes(inode)

    def _drop_bytes(self, inode: int) -> None:
        self.pending = [effect for effect in self.pending if not _writes(effect, inode)]

    def _resolve_names(self, directory: int) -> None:
        mine = [effect for effect in self.pending if effect.directory == directory]
        for effect in mine:
            if effect.needs >= 0:
                self._resolve_link(effect.needs)
            _apply_to_names(self._directories, effect)
        self.pending = [effect for effect in self.pending if effect.directory != directory]

    def _resolve_link(self, index: int) -> None:
        """The source of a rename may not be durably gone before its target is durably there."""
        for link in self.pending:
            if link.index == index and link.add:
                _apply_to_names(self._directories, link)
                self._drop_name_effects(link.directory, link.add, up_to=index)
                return

    def _drop_name_effects(self, directory: int, name: str, up_to: int) -> None:
        self.pending = [
            effect
            for effect in self.pending
            if effect.directory != directory
            or effect.index > up_to
            or name not in (effect.add, effect.remove)
        ]

    def _plant(self, operation: Operation) -> None:
        self._drop_name_effects(operation.directory, operation.name, up_to=self.point)
        names = self._directories.get(operation.directory, {})
        self._directories[operation.directory] = {**names, operation.name: operation.inode}
        if operation.kind is OperationKind.PLANT_DIRECTORY:
            self._directories.setdefault(operation.inode, {})
        else:
            self._drop_bytes(operation.inode)
            self._contents[operation.inode] = operation.data


def name_effects(index: int, operation: Operation) -> list[Effect]:
    """The effects of one operation on names; two for a rename between directories."""
    kind, directory, name = operation.kind, operation.directory, operation.name
    if kind in (OperationKind.CREATE, OperationKind.MAKE_DIRECTORY):
        return [Effect(index, operation, directory, add=name)]
    if kind in (OperationKind.UNLINK, OperationKind.REMOVE_DIRECTORY):
        return [Effect(index, operation, directory, remove=name)]
    if operation.target_directory == directory:
        return [Effect(index, operation, directory, remove=name, add=operation.target_name)]
    return [
        Effect(index, operation, operation.target_directory, add=operation.target_name),
        Effect(index, operation, directory, remove=name, needs=index),
    ]


def _writes(effect: Effect, inode: int) -> bool:
    return effect.is_data and effect.operation.inode == inode


def _apply_to_names(directories: dict[int, Mapping[str, int]], effect: Effect) -> None:
    names = dict(directories.get(effect.directory, {}))
    if effect.remove:
        names.pop(effect.remove, None)
    if effect.add:
        names[effect.add] = effect.operation.inode
    directories[effect.directory] = names
