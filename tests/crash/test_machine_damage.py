"""A flip and a cut at every byte of every kind of the machines' files, beside an oracle.

Every case gives the same answer as the oracle's, or a refusal that names the file and changes
nothing, or damage that is told, with every instance that may be wrong marked as in doubt. Anything
else is silent, and there is none. `make crash` prints the counts by kind of file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache, partial
from pathlib import PurePath
from typing import Any

import pytest

from headwater.core.errors import StorageError
from headwater.format.machines.current import encode_fed
from headwater.format.machines.names import FED_NAME
from headwater.recovery.machines.plan import plan_machine_repairs
from headwater.testing import KILL, PREFIXES, FakeDisk
from headwater.testing.trace import Image
from tests.crash.matrix import slice_of, tried
from tests.rig.machines import ORDER, PLACE, SteppedStore, new_disk

pytestmark = pytest.mark.crash

ROUND = ("PAY", "SHIP", "CLOSE", "AGAIN")
State = dict[str, Any]
EVERY = {"segment": 11, "snapshot": 3, "history": 5, "index.json": 3, "CURRENT": 1, "FED": 1}
NEVER_READ = frozenset(("LOCK", "prepared.next"))


class Outcome(Enum):
    SAME = "same answer"
    REFUSED = "refused, nothing changed"
    TOLD = "told"
    UNWITNESSED = "no witness left"
    """Of a killed process only: the newest entries, that nobody had vouched for yet."""
    SILENT = "silent"


@cache
def lived(cleanly: bool) -> tuple[Image, list[State]]:
    """Two snapshots, log between and behind them; the states of the last few changes."""
    disk = new_disk()
    store = SteppedStore(disk)
    states: list[State] = []

    def do(work: Callable[[], Any]) -> None:
        store.do(work)
        states.append(store.state())

    do(lambda: store.put_machine("order", 1, ORDER))
    for name in ("a", "b"):
        do(partial(store.create_instance, "order", 1, name, {"total": 5}, f"key-{name}"))
        for event in ROUND:
            do(partial(store.apply_event, name, event, {"by": "somebody"}))
    store.compact()
    do(lambda: store.create_instance("order", 1, "c", {"total": 5}))
    for event in ROUND:
        do(partial(store.apply_event, "b", event))
    store.compact()
    do(lambda: store.delete_instance("a"))
    do(lambda: store.create_instance("order", 1, "d", {"total": 1}))
    for event in ROUND[:3]:
        do(partial(store.apply_event, "d", event, idempotency_key=f"d-{event}"))
    if cleanly:
        store.close()
    disk.write_file(PLACE / FED_NAME, encode_fed(1 << 40))
    return disk.snapshot(), states


def files_of(image: Image) -> dict[PurePath, bytes]:
    files = FakeDisk(image=image).files().items()
    return {
        path: contents
        for path, contents in files
        if contents and path.is_relative_to(PLACE) and path.name not in NEVER_READ
    }


def kind_of(path: PurePath) -> str:
    return {".wal": "segment", ".snap": "snapshot", ".hist": "history"}.get(path.suffix, path.name)


def check_refusal(refusal: StorageError, *, changed: bool) -> Outcome:
    assert str(PLACE) in str(refusal), f"does not say where: {refusal}"
    assert not changed, "refused, and yet the disk was changed"
    return Outcome.REFUSED


def judge_history(store: SteppedStore) -> Outcome:
    """What an instance went through: all of it, or it says that some is missing."""
    history = store.history("b").read()
    whole = ["made", *ROUND, *ROUND]
    told = [getattr(each.body, "event", "made") for each in history.entries]
    if told == whole:
        return Outcome.SAME
    partly = not history.complete and told == whole[len(whole) - len(told) :]
    return Outcome.TOLD if partly else Outcome.SILENT


def judge(disk: FakeDisk, states: list[State], cleanly: bool) -> Outcome:
    before = disk.files()
    try:
        store = SteppedStore(disk)
    except StorageError as refusal:
        return check_refusal(refusal, changed=disk.files() != before)
    found, told = store.state(), bool(store.report.lines())
    if found == states[-1]:
        return Outcome.TOLD if told else judge_history(store)
    if not cleanly and not store.report.log.damage and found in states[-3:]:
        return Outcome.TOLD if told else Outcome.UNWITNESSED
    if not told or not store.report.log.damage:
        return Outcome.SILENT
    true = {each.id: each for each in states[-1]["instances"]}
    for instance in found["instances"]:
        if instance != true.get(instance.id) and not store.is_doubtful(instance):
            return Outcome.SILENT
    return Outcome.TOLD


def flips(contents: bytes, every: int) -> Iterator[tuple[str, bytes | None]]:
    for at in slice_of(range(len(contents)), every):
        flipped = bytes([contents[at] ^ 1 << at % 8])
        yield f"bit {at % 8} of byte {at}", contents[:at] + flipped + contents[at + 1 :]


def cuts(contents: bytes, every: int) -> Iterator[tuple[str, bytes | None]]:
    for length in slice_of(range(len(contents)), every):
        yield f"cut at {length}", contents[:length]
    yield "missing", None


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("harm", [flips, cuts])
def test_damage_at_every_byte_is_harmless_refused_or_told_and_never_silent(
    harm: Callable[[bytes, int], Iterator[tuple[str, bytes | None]]], cleanly: bool
) -> None:
    image, states = lived(cleanly)
    counts: Counter[tuple[str, Outcome]] = Counter()
    silent: list[str] = []
    for path, contents in files_of(image).items():
        kind = kind_of(path)
        for what, planted in harm(contents, EVERY[kind]):
            disk = FakeDisk(image=image)
            if planted is None:
                disk.unlink(path)
                disk.settle()
            else:
                disk.write_file(path, planted)
            outcome = judge(disk, states, cleanly)
            counts[kind, outcome] += 1
            if outcome is Outcome.SILENT:
                silent.append(f"{path}, {what}")
    for kind in EVERY:
        for outcome in Outcome:
            if counts[kind, outcome] or outcome is Outcome.SILENT:
                tried(
                    f"machines, {harm.__name__} of {kind}: {outcome.value}", counts[kind, outcome]
                )
    assert not silent
    assert counts["segment", Outcome.TOLD]
    if cleanly:
        assert not any(outcome is Outcome.UNWITNESSED for _, outcome in counts)


def damaged_snapshots(image: Image, at: int) -> FakeDisk:
    disk = FakeDisk(image=image)
    for path, contents in files_of(image).items():
        if path.suffix == ".snap":
            place = 8 + at % (len(contents) - 8)
            flipped = bytes([contents[place] ^ 0x10])
            disk.write_file(path, contents[:place] + flipped + contents[place + 1 :])
    return disk


def test_what_a_start_refuses_a_repair_makes_readable_and_the_loss_is_told() -> None:
    """Both snapshots damaged at every byte, the log before them gone: refused; then repaired."""
    image, states = lived(True)
    longest = max(len(c) for p, c in files_of(image).items() if p.suffix == ".snap")
    true = {each.id: each for each in states[-1]["instances"]}
    repaired = 0
    for at in slice_of(range(longest - 8), 5):
        disk = damaged_snapshots(image, at)
        before = files_of(disk.snapshot())
        assert judge(disk, states, True) is Outcome.REFUSED, at
        plans = plan_machine_repairs(disk, PLACE)
        assert files_of(disk.snapshot()) == before, "a plan changes nothing"
        assert plans, at
        for plan in plans:
            plan.carry_out(disk)
        assert plan_machine_repairs(disk, PLACE) == []
        store = SteppedStore(disk)
        assert store.report.damaged_entries > 0, "the loss is told at every start from now on"
        for instance in store.tables.instances.values():
            assert instance == true[instance.id] or store.is_doubtful(instance), at
        kept = [p for p in disk.files() if p.parent == PLACE / "snapshots" / "quarantine"]
        assert {disk.files()[path] for path in kept} == {
            contents for path, contents in before.items() if path.suffix == ".snap"
        }
        repaired += 1
        tried("machines: repaired snapshots")
    assert repaired


def test_a_crash_in_a_repair_leaves_it_to_be_repeated() -> None:
    image, _ = lived(True)
    disk = damaged_snapshots(image, 40)
    base = FakeDisk(image=disk.snapshot())
    (plan,) = plan_machine_repairs(base, PLACE)
    recorder = base.clone()
    begin = recorder.point
    plan.carry_out(recorder)
    wanted = SteppedStore(FakeDisk(image=recorder.snapshot())).state()
    for kind in (KILL, PREFIXES):
        for crashed in slice_of(recorder.crash_states(plan=kind), 1):
            if crashed.crash_point < begin:
                continue
            for again in plan_machine_repairs(crashed, PLACE):
                again.carry_out(crashed)
            assert SteppedStore(crashed).state() == wanted, crashed.label
            tried("machines: crashes in a repair")


def test_an_empty_segment_in_place_of_a_missing_one_lets_the_rest_be_read() -> None:
    image, states = lived(True)
    last = max(path for path in files_of(image) if path.suffix == ".wal")
    disk = FakeDisk(image=image)
    disk.unlink(last)
    disk.settle()
    assert judge(disk, states, True) is Outcome.REFUSED
    (plan,) = plan_machine_repairs(disk, PLACE)
    assert [step.path for step in plan.steps] == [last]
    plan.carry_out(disk)
    assert judge(disk, states, True) is Outcome.TOLD


def test_without_any_snapshot_a_repair_begins_before_the_first_entry_that_is_left() -> None:
    image, states = lived(True)
    disk = FakeDisk(image=image)
    for path in [path for path in disk.files() if path.parent == PLACE / "snapshots"]:
        disk.unlink(path)
    disk.settle()
    assert judge(disk, states, True) is Outcome.REFUSED
    (plan,) = plan_machine_repairs(disk, PLACE)
    assert "all that was before is lost" in plan.steps[0].line()
    plan.carry_out(disk)
    store = SteppedStore(disk)
    true = {each.id: each for each in states[-1]["instances"]}
    assert store.tables.instances["d"] == true["d"], "all of its entries are left"
    for instance in store.tables.instances.values():
        assert instance == true[instance.id] or store.is_doubtful(instance)
    assert store.report.damaged_entries > 0
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.apply_event("d", "AGAIN"))
    again = SteppedStore(FakeDisk(image=disk.snapshot()))
    assert again.state() == store.state()
