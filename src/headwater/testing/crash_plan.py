"""What may be on the platter at one point of a trace, and which of the many disks a test checks.

The rules are those of a journaling file system, read as pessimistically as POSIX allows:

- `sync_data` makes the bytes and the size of one inode durable, and nothing else: not its name.
- `sync_directory` makes the names in that directory durable, and nothing else: not the bytes of
  the files, not the name of the directory itself.
- Everything later is *pending*: each pending effect may have reached the platter or not,
  independently of the others and of the order in which they were asked for.
- A rename within a directory is one effect: its target is the old file or the new, never
  neither. A rename between directories may leave both names, never none.
- An inode that no durable name leads to is gone.

All subsets of n pending effects are 2^n disks. The plan names the families that find bugs in
practice, each at most quadratic, and says in a readable label which case a disk is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import combinations, pairwise
from typing import Final

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


SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = 4096


class CrashKind(Enum):
    """One family of disks."""

    KILL = "kill"
    """The process dies, the machine does not: everything written is there."""
    NONE = "none"
    """Power loss; nothing un-synced survives."""
    ALL = "all"
    """Power loss; everything un-synced survives. With NONE at every point: all prefixes."""
    SPLIT = "split"
    """All names without any bytes, and all bytes without any names."""
    SINGLE_DROP = "single-drop"
    """Everything but one effect survives."""
    SINGLE_KEEP = "single-keep"
    """Nothing but one effect survives."""
    PAIR = "pair"
    """Two effects are lost, kept alone, kept across a hole, or applied in the wrong order."""
    TORN = "torn"
    """The last un-synced write stops at a byte; the rest is absent, zeros or garbage."""
    LOST_BLOCK = "lost-block"
    """One sector or page in the last un-synced write is missing, what follows it is there."""
    RANDOM = "random"
    """Random subsets in which any write may be torn, from the seed."""
    SECTORS = "sectors"
    """Random subsets of the sectors of all un-synced writes, from the seed."""


class Rest(Enum):
    """What is where the torn part of a write should be."""

    ABSENT = "absent"
    ZEROS = "zeros"
    GARBAGE = "garbage"


@dataclass(frozen=True, slots=True)
class CrashPlan:
    """The families to check, and the bounds that keep a sweep finite."""

    kinds: frozenset[CrashKind] = frozenset(CrashKind)
    tear_every_byte_max: int = 1024
    """Writes up to this size are torn at every byte, longer ones around sector borders."""
    rests: tuple[Rest, ...] = (Rest.ABSENT, Rest.ZEROS, Rest.GARBAGE)
    pair_effects_max: int = 32
    """Pairs are made from the latest so many effects only."""
    random_states: int = 8
    """How many random subsets at each crash point."""
    sector_bytes: int = SECTOR_BYTES
    """What survives as a whole in SECTORS: less than a real one tears small files as finely."""
    seed: int = 0

    @staticmethod
    def of(*kinds: CrashKind) -> CrashPlan:
        return CrashPlan(frozenset(kinds))


EVERYTHING: Final = CrashPlan()
PREFIXES: Final = CrashPlan.of(CrashKind.NONE, CrashKind.ALL, CrashKind.SPLIT, CrashKind.KILL)
DROPS: Final = CrashPlan.of(CrashKind.SINGLE_DROP, CrashKind.SINGLE_KEEP)
PAIRS: Final = CrashPlan.of(CrashKind.PAIR)
TORN: Final = CrashPlan.of(CrashKind.TORN, CrashKind.LOST_BLOCK)
RANDOM: Final = CrashPlan.of(CrashKind.RANDOM)
SECTORS: Final = CrashPlan.of(CrashKind.SECTORS)
KILL: Final = CrashPlan.of(CrashKind.KILL)
POWER_LOSS: Final = CrashPlan.of(CrashKind.NONE)

Case = tuple[CrashKind, str, Sequence[Effect]]


def cases(model: PowerLossModel, plan: CrashPlan) -> Iterator[Case]:
    """The kind, the label and the survivors of each disk the plan asks for, without repeats.

    KILL is not among them: what a killed process leaves does not depend on what is durable.
    """
    seen: set[tuple[int, ...]] = set()
    for kind, label, survivors in _subsets(model.pending, plan):
        key = tuple(map(id, survivors))
        if key not in seen:
            seen.add(key)
            yield kind, label, survivors
    yield from _tears(model, plan)
    if CrashKind.RANDOM in plan.kinds and model.pending:
        yield from _random(model, plan)
    if CrashKind.SECTORS in plan.kinds and any(map(_is_write, model.pending)):
        yield from _sectors(model, plan)


def _subsets(pending: Sequence[Effect], plan: CrashPlan) -> Iterator[Case]:
    kinds = plan.kinds
    if CrashKind.NONE in kinds:
        yield CrashKind.NONE, "nothing un-synced survives", []
    if CrashKind.ALL in kinds:
        yield CrashKind.ALL, "everything un-synced survives", list(pending)
    if CrashKind.SPLIT in kinds:
        names = [effect for effect in pending if not effect.is_data]
        yield CrashKind.SPLIT, "un-synced names survive, bytes do not", names
        data = [effect for effect in pending if effect.is_data]
        yield CrashKind.SPLIT, "un-synced bytes survive, names do not", data
    for effect in pending:
        if CrashKind.SINGLE_DROP in kinds:
            yield CrashKind.SINGLE_DROP, f"lost {effect}", _without(pending, effect)
        if CrashKind.SINGLE_KEEP in kinds:
            yield CrashKind.SINGLE_KEEP, f"only {effect} survives", [effect]
    if CrashKind.PAIR in kinds:
        for first, second in combinations(pending[-plan.pair_effects_max :], 2):
            yield from _pair(pending, first, second)


def _pair(pending: Sequence[Effect], first: Effect, second: Effect) -> Iterator[Case]:
    kind = CrashKind.PAIR
    yield kind, f"lost {first} and {second}", _without(pending, first, second)
    yield kind, f"only {first} and {second} survive", [first, second]
    before = list(pending[: pending.index(first)])
    yield kind, f"lost from {first} on, but {second} survives", [*before, second]
    if _overlap(first, second):
        swapped = [
            second if effect is first else first if effect is second else effect
            for effect in pending
        ]
        yield kind, f"{second} applied before {first}", swapped


def _tears(model: PowerLossModel, plan: CrashPlan) -> Iterator[Case]:
    wanted = plan.kinds & {CrashKind.TORN, CrashKind.LOST_BLOCK}
    last = next((effect for effect in reversed(model.pending) if _is_write(effect)), None)
    if not wanted or last is None:
        return
    others = _without(model.pending, last)
    index = model.pending.index(last)
    if CrashKind.TORN in wanted:
        old = _bytes_before(model, last)
        for label, torn in _torn(last, old, plan):
            yield CrashKind.TORN, label, [*others[:index], torn, *others[index:]]
    if CrashKind.LOST_BLOCK in wanted:
        for label, parts in _lost_blocks(last):
            yield CrashKind.LOST_BLOCK, label, [*others[:index], *parts, *others[index:]]


def _torn(effect: Effect, old: bytes, plan: CrashPlan) -> Iterator[tuple[str, Effect]]:
    """`old` is what the file held from the start of the write on, before the write."""
    data = effect.operation.data
    noise = random.Random(plan.seed * 1_000_003 + effect.index).randbytes(len(data))
    # A write that changes nothing can leave nothing else behind either: a sector is the old one
    # or the new one, and these are the same.
    rests = (Rest.ABSENT,) if old == data else plan.rests
    old_is_zeros_from = len(old.rstrip(b"\0")) if len(old) >= len(data) else len(data)
    for cut in tear_points(effect.operation.offset, len(data), plan.tear_every_byte_max):
        for rest in rests:
            if rest is Rest.ABSENT:
                torn = data[:cut]
            elif rest is Rest.ZEROS:
                if Rest.ABSENT in plan.rests and cut >= old_is_zeros_from:
                    continue  # zeros over zeros: the same disk as ABSENT
                torn = data[:cut] + bytes(len(data) - cut)
            else:
                torn = data[:cut] + noise[cut:]
            label = f"torn {effect} after {cut} bytes, rest {rest.value}"
            yield label, _with_data(effect, 0, torn)


def _lost_blocks(effect: Effect) -> Iterator[tuple[str, list[Effect]]]:
    start, data = effect.operation.offset, effect.operation.data
    end = start + len(data)
    for block_bytes in (SECTOR_BYTES, PAGE_BYTES):
        borders = [start, *range(start - start % block_bytes + block_bytes, end, block_bytes), end]
        # The last block missing is a torn write, and a single block missing is a lost write.
        for low, high in list(pairwise(borders))[:-1]:
            head = _with_data(effect, 0, data[: low - start])
            tail = _with_data(effect, high - start, data[high - start :])
            yield f"lost bytes {low} to {high} of {effect}", [head, tail]


def _random(model: PowerLossModel, plan: CrashPlan) -> Iterator[Case]:
    source = random.Random(f"{plan.seed}/{model.point}")
    for number in range(plan.random_states):
        survivors: list[Effect] = []
        words: list[str] = []
        keep = source.choice((0.1, 0.5, 0.9))
        for effect in model.pending:
            if source.random() >= keep:
                continue
            if _is_write(effect) and source.random() < 0.25:
                cut = source.randrange(len(effect.operation.data))
                survivors.append(_with_data(effect, 0, effect.operation.data[:cut]))
                words.append(f"#{effect.index} torn at {cut}")
            else:
                survivors.append(effect)
                words.append(f"#{effect.index}")
        kept = ", ".join(words) or "nothing"
        yield CrashKind.RANDOM, f"random {number} of seed {plan.seed}: {kept} survives", survivors


def _sectors(model: PowerLossModel, plan: CrashPlan) -> Iterator[Case]:
    source = random.Random(f"sectors {plan.seed}/{model.point}")
    for number in range(plan.random_states):
        survivors: list[Effect] = []
        lost = 0
        keep = source.choice((0.1, 0.5, 0.9))
        for effect in model.pending:
            parts = _parts(effect, plan.sector_bytes) if _is_write(effect) else [effect]
            kept = [part for part in parts if source.random() < keep]
            lost += len(parts) - len(kept)
            survivors += kept
        label = f"sectors {number} of seed {plan.seed}: {lost} lost, {len(survivors)} survive"
        yield CrashKind.SECTORS, label, survivors


def _parts(effect: Effect, sector_bytes: int) -> list[Effect]:
    """A write as one of each sector it touches."""
    start, data = effect.operation.offset, effect.operation.data
    end = start + len(data)
    borders = [start, *range(start - start % sector_bytes + sector_bytes, end, sector_bytes), end]
    return [
        _with_data(effect, low - start, data[low - start : high - start])
        for low, high in pairwise(borders)
    ]


def tear_points(offset: int, length: int, every_byte_max: int) -> Sequence[int]:
    """Where to tear a write: at each byte, or on and beside the sector borders of the file."""
    if length <= every_byte_max:
        return range(length)
    points = {0, 1, length - 1}
    first = offset - offset % SECTOR_BYTES + SECTOR_BYTES
    for border in range(first, offset + length, SECTOR_BYTES):
        points.update((border - offset - 1, border - offset, border - offset + 1))
    return sorted(point for point in points if 0 <= point < length)


def _bytes_before(model: PowerLossModel, write: Effect) -> bytes:
    content = bytearray(model.durable_bytes(write.operation.inode))
    for effect in model.pending:
        if effect is write:
            break
        if effect.is_data and effect.operation.inode == write.operation.inode:
            apply_to_bytes(content, effect.operation)
    start = write.operation.offset
    return bytes(content[start : start + len(write.operation.data)])


def _with_data(effect: Effect, skip: int, data: bytes) -> Effect:
    operation = effect.operation
    return replace(effect, operation=replace(operation, offset=operation.offset + skip, data=data))


def _is_write(effect: Effect) -> bool:
    return effect.operation.kind is OperationKind.WRITE and bool(effect.operation.data)


def _without(pending: Sequence[Effect], *lost: Effect) -> list[Effect]:
    return [effect for effect in pending if not any(effect is one for one in lost)]


def _overlap(first: Effect, second: Effect) -> bool:
    one, two = first.operation, second.operation
    return (
        _is_write(first)
        and _is_write(second)
        and one.inode == two.inode
        and one.offset < two.offset + len(two.data)
        and two.offset < one.offset + len(one.data)
    )
