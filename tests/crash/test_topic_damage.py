"""A flip and a cut at every byte of every file that topics have, beside an oracle.

Every case gives the same answers as the oracle's, or a refusal that names the file and changes
nothing, or damage that is told: to the reader, as a tombstone of exactly what is missing, and to
the operator. Where damage took the end of the log with every witness of it, the log may end at a
whole group. Anything else is silent, and there is none. Nor does a topic suffer for another one's
file (I5, I6). `make crash` prints the counts by kind of file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import PurePath

import pytest
from msgspec.structs import replace

from headwater.core.errors import HeadwaterError, StorageError
from headwater.engine.database import Database
from headwater.engine.read_only.directory_check import verify_directory
from headwater.format.names import COLD_ADDRESS_NAME
from headwater.format.segment import SegmentFile, parse_segment_file
from headwater.testing import FakeDisk, ManualClock
from tests.crash.damage import check_refusal
from tests.crash.matrix import FULL, slice_of, tried
from tests.rig.life import COLD, DATA
from tests.rig.topic_answers import Answers, Event, ask_everything
from tests.rig.topic_lives import LITTLE, LIVES, WAL, Specimen, opened

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1_800)]

EVERY = {
    "log file": 43,
    "CURRENT": 13,
    "REPAIRS": 11,
    "prepared.next": 101,
    "snapshot": 113,
    "cold-tier.json": 7,
    "data": 67,
    "index": 29,
    "cold index": 41,
    "cold data": 79,
    "index beside cold data": 67,
    "report": 11,
    "LOCK": 1,
}
"""Every kind of file; of each, one byte of so many is tried in the short form."""
ALIKE = {"killed": 5, "snapshot": 4, "zeros": 16}
"""What the full form thins out: of a killed directory, files that are a stopped one's too; the body
of a snapshot, under one checksum; and the zeros behind the end of a log file."""


class Outcome(Enum):
    SAME = "same answer"
    TOLD = "told"
    REFUSED_TOPIC = "one topic refused"
    REFUSED = "refused, nothing changed"
    UNWITNESSED = "no witness left"
    SILENT = "silent"


QUIET = (Outcome.SAME, Outcome.UNWITNESSED)
"""Where `verify` need not find anything."""


class Silent(AssertionError):
    """What must never happen."""


def kind_of(path: PurePath) -> str:
    is_cold = COLD in path.parents
    if path.suffix == ".json" and path.parent.name == "reports":
        return "report"
    by_suffix = {
        ".log": "log file",
        ".bin": "snapshot",
        ".data": "cold data" if is_cold else "data",
        ".idx": "index beside cold data" if is_cold else "index",
        ".cold": "cold index",
    }
    return by_suffix.get(path.suffix, path.name)


def numbers_of(event: Event) -> range:
    """Of a tombstone."""
    return range(event[1], event[2] + 1)


def check_readers(name: str, found: list[Event], expected: list[Event], lost: set[int]) -> None:
    """Every record is served as it was, or lies in a tombstone that tells of it; `lost` is what
    such a tombstone may tell of besides records."""
    records = {event[0]: event for event in expected if event[0] != "tombstone"}
    served = {event[0]: event for event in found if event[0] != "tombstone"}
    for seq, event in served.items():
        if records.get(seq) != event:
            raise Silent(f"{name} served {event}, which is {records.get(seq)}")
    floors = [event for event in expected if event[0] == "tombstone"]
    told: set[int] = set()
    for event in found:
        if event[0] == "tombstone" and event not in floors:
            if event[3] not in ("damaged", "source_trim"):
                raise Silent(f"{name}: {event}")
            told.update(numbers_of(event))
    missing = records.keys() - served.keys()
    if not missing <= told:
        raise Silent(f"{name}: nobody is told of {sorted(missing - told)}")
    if not told <= missing | lost:
        raise Silent(f"{name}: {sorted(told - missing - lost)} are told as damaged, and are not")
    if not all(floor in found for floor in floors):
        raise Silent(f"{name}: {floors} became {found}")


def check_topic(name: str, path: PurePath, found: Answers, expected: Answers) -> None:
    """A topic whose own file was damaged. With the index of a segment goes the word about which
    of its records were dead."""
    lost: set[int] = set()
    place = parse_segment_file(path.name)
    if place is not None and place[1] is not SegmentFile.DATA:
        lost.update(range(place[0], place[0] + LITTLE.segments.segment_max_events))
    check_readers(name, found.events[name], expected.events[name], lost)
    for here, there in ((found.states, expected.states), (found.repeats, expected.repeats)):
        if here.get(name) != there.get(name):
            raise Silent(f"{name}: {here.get(name)}, it was {there.get(name)}")


def check_copies(name: str, source: str, found: Answers, expected: Answers) -> None:
    """A destination whose source was damaged, with copies that were to be made again."""
    there, here = expected.events[name], found.events[name]
    if source in found.refused:
        if here != there[: len(here)]:
            raise Silent(f"{name}: {here}")
    else:
        check_readers(name, here, there, set())


def check_told(db: Database, path: PurePath, found: Answers, expected: Answers) -> None:
    if found.topics != expected.topics:
        raise Silent(f"topics are {found.topics}")
    hurt = {name for name in found.topics if found.of(name) != expected.of(name)}
    told = {place.topic for place in db.engine.core.damage.ranges}
    definitions = [
        {
            name: replace(router, source_seq=0, lag=0, held=False, forwarded_total=0)
            for name, router in answers.routers.items()
        }
        for answers in (found, expected)
    ]
    if definitions[0] != definitions[1]:
        raise Silent(f"routers are {found.routers}, they were {expected.routers}")
    for router in expected.routers.values():
        if router.dest in hurt and router.source in told:
            check_copies(router.dest, router.source, found, expected)
            hurt.discard(router.dest)
        elif found.routers[router.router] != router and not told & {router.source, router.dest}:
            raise Silent(f"{found.routers[router.router]} was {router}")
    if len(hurt) != 1:
        raise Silent(f"one file, and {sorted(hurt)} suffer")
    for name in hurt:
        if name not in told:
            raise Silent(f"{name}: the operator is not told; {found.of(name)}, {expected.of(name)}")
        if name not in found.refused:
            check_topic(name, path, found, expected)


def is_told(db: Database, specimen: Specimen) -> bool:
    engine = db.engine
    return bool(
        engine.core.damage.ranges
        or engine.notes.snapshots_unreadable
        or {finding.line() for finding in engine.wal_report.findings} - specimen.findings
    )


def compare(db: Database, specimen: Specimen, path: PurePath, damaged: FakeDisk) -> Outcome:
    found, expected = ask_everything(db), specimen.answers
    if found == expected:
        return Outcome.TOLD if is_told(db, specimen) else Outcome.SAME
    least = specimen.witnessed(damaged) if specimen.shorter else 0
    if any(found == answers for end, answers in specimen.shorter if end >= least):
        return Outcome.UNWITNESSED
    check_told(db, path, found, expected)
    return Outcome.REFUSED_TOPIC if found.refused else Outcome.TOLD


def go_on(disk: FakeDisk, db: Database, refused: bool) -> None:
    """What can be written can be written, and opened again."""
    for topic in list(db.engine.core.registry):
        if topic.inbound is not None and topic.inbound.is_exact:
            continue  # takes copies only
        try:
            db.append(topic.name, {"data": "after"})
        except HeadwaterError as error:
            if not refused:
                raise Silent(f"{topic.name} cannot be written: {error}") from error
    db.engine._lock.release()
    again = opened(disk)
    ask_everything(again)
    again.engine._lock.release()


def but_the_lock(disk: FakeDisk) -> dict[PurePath, bytes]:
    return {path: content for path, content in disk.files().items() if path.name != "LOCK"}


def judge(specimen: Specimen, disk: FakeDisk, path: PurePath, goes_on: bool) -> Outcome:
    damaged = FakeDisk(image=disk.snapshot())
    before = but_the_lock(disk)
    try:
        db = opened(disk)
    except StorageError as error:
        check_refusal(error, str(path))
        if but_the_lock(disk) != before:
            raise Silent("refused, and yet the disk was changed") from error
        if "topics" in path.parts:
            raise Silent(f"a file of one topic stops all: {error}") from error
        return Outcome.REFUSED
    outcome = compare(db, specimen, path, damaged)
    if goes_on:
        go_on(disk, db, outcome is Outcome.REFUSED_TOPIC)
    else:
        db.engine._lock.release()
    return outcome


def verified(disk: FakeDisk) -> tuple[list[object], bool]:
    report = verify_directory(disk, DATA, ManualClock(), lambda _: lambda _: None)
    found: list[object] = [*report.faults, *report.unchecked, *report.wal.findings]
    return found, bool(report.bad or report.wal.refusals)


def flips(content: bytes) -> Iterator[tuple[int, str, bytes | None]]:
    for at in range(len(content)):
        bit = at % 8
        flipped = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
        yield at, f"bit {bit} of byte {at}", flipped


def cuts(content: bytes) -> Iterator[tuple[int, str, bytes | None]]:
    for length in range(len(content)):
        yield length, f"cut to {length} bytes", content[:length]


def wholes(content: bytes) -> Iterator[tuple[int, str, bytes | None]]:
    yield 0, "missing", None
    yield 0, "zeroed", bytes(len(content))
    yield 0, "with bytes behind its end", content + b"\1" * 40


HARMS = {"a bit": flips, "cut": cuts, "whole": wholes}
PARTS = range(8 if FULL else 1)
"""One harm to one life is minutes of work in the full form: parts of it go to several cores."""


def is_alike(life: str, path: PurePath, at: int, end: int) -> bool:
    """Like the byte before it, so that the full form may pass it over."""
    if path.parent == WAL:
        return at > end + ALIKE["zeros"] and at % ALIKE["zeros"] != 0
    if life == "killed":
        return at % ALIKE["killed"] != 0
    return kind_of(path) == "snapshot" and at > 64 and at % ALIKE["snapshot"] != 0


def cases(specimen: Specimen, life: str, harm: str) -> Iterator[tuple[PurePath, str, bytes | None]]:
    for path, content in specimen.disk().files().items():
        if life == "repaired" and path.parent != WAL:
            continue
        end = len(content.rstrip(b"\0"))
        every = 1 if harm == "whole" else EVERY[kind_of(path)]
        for at, what, planted in slice_of(HARMS[harm](content), every):
            if not FULL or harm == "whole" or not is_alike(life, path, at, end):
                yield path, what, planted


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("harm", HARMS)
def test_damage_to_any_byte_of_a_topics_files_is_never_silent(
    harm: str, life: str, part: int
) -> None:
    specimen = LIVES[life]()
    sound, _ = verified(specimen.disk())
    counts: Counter[tuple[str, Outcome]] = Counter()
    silent: list[str] = []
    unseen: list[str] = []
    for number, (path, what, planted) in enumerate(cases(specimen, life, harm)):
        if number % len(PARTS) != part:
            continue
        disk = specimen.disk()
        if planted is None:
            disk.unlink(path)
        else:
            disk.write_file(path, planted)
        disk.settle()
        damaged = FakeDisk(image=disk.snapshot())
        try:
            outcome = judge(specimen, disk, path, not FULL or number % 7 == 0)
        except Exception as error:
            outcome = Outcome.SILENT
            silent.append(f"{path}, {what}: {type(error).__name__} {error}")
        looks = not FULL or number % 10 == 0
        if looks and outcome not in QUIET and verified(damaged)[0] == sound:
            unseen.append(f"{path}, {what}: {outcome.value}, and verify finds nothing")
        counts[kind_of(path), outcome] += 1
    for (kind, outcome), cases_of in counts.items():
        tried(f"topics, {harm} of {kind}: {outcome.value}", cases_of)
    assert not silent, f"{len(silent)}:\n" + "\n".join(silent[:20])
    assert not unseen, f"{len(unseen)}:\n" + "\n".join(unseen[:20])
    if life == "stopped":
        assert not any(outcome is Outcome.UNWITNESSED for _, outcome in counts)


def test_the_lives_have_every_kind_of_file() -> None:
    kinds = {kind_of(path) for life in LIVES.values() for path in life().disk().files()}
    assert kinds == EVERY.keys()


def test_an_address_of_the_cold_tier_that_is_no_text_stops_no_start() -> None:
    """JSON that is not UTF-8 is an error of its own kind."""
    specimen = LIVES["stopped"]()
    path = DATA / "meta" / COLD_ADDRESS_NAME
    disk = specimen.disk()
    content = disk.files()[path]
    at = content.index(b"cold")
    disk.write_file(path, content[:at] + bytes([content[at] ^ 0x80]) + content[at + 1 :])
    disk.settle()
    assert judge(specimen, disk, path, True) is Outcome.SAME
    assert disk.files()[path] == content
