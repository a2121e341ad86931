"""Which of the many possible disks after a power loss a test checks.

All subsets of n pending effects are 2^n disks. The plan names the families that find bugs in
practice, each at most quadratic, and says in a readable label which case a disk is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import combinations, pairwise
from typing import Final

from headwater.testing.power_loss import Effect, PowerLossModel
from headwater.testing.trace import OperationKind, apply_to_bytes

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
