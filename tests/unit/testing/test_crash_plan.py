"""Which disks a crash plan yields."""

from __future__ import annotations

from pathlib import PurePosixPath

from headwater.disk import OpenMode
from headwater.testing import PAIRS, RANDOM, CrashKind, CrashPlan, FakeDisk, Rest
from headwater.testing.crash_plan import tear_points

ROOT = PurePosixPath("/data")
A = ROOT / "a"
TORN = CrashPlan.of(CrashKind.TORN)


def disk_with_writes(*writes: tuple[int, bytes], base: bytes = b"") -> FakeDisk:
    disk = FakeDisk([ROOT])
    disk.write_file(A, base)
    disk.settle()
    file = disk.open(A, OpenMode.UPDATE)
    for offset, data in writes:
        file.write(offset, [data])
    return disk


def found(disk: FakeDisk, plan: CrashPlan) -> list[bytes]:
    return [state.files()[A] for state in disk.crash_states(disk.point, plan)]


def test_a_single_drop_loses_each_write_in_turn() -> None:
    disk = disk_with_writes((0, b"a"), (1, b"b"), (2, b"c"))
    plan = CrashPlan.of(CrashKind.SINGLE_DROP)
    assert found(disk, plan) == [b"\0bc", b"a\0c", b"ab"]


def test_a_single_keep_keeps_each_write_in_turn() -> None:
    disk = disk_with_writes((0, b"a"), (1, b"b"), (2, b"c"))
    plan = CrashPlan.of(CrashKind.SINGLE_KEEP)
    assert found(disk, plan) == [b"a", b"\0b", b"\0\0c"]


def test_pairs_lose_two_keep_two_and_leave_holes() -> None:
    disk = disk_with_writes((0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"))
    outcomes = set(found(disk, PAIRS))
    assert {b"\0\0cd", b"a\0\0d", b"ab"} <= outcomes, "two lost"
    assert {b"ab", b"\0b\0d", b"\0\0cd"} <= outcomes, "two kept"
    assert {b"a\0\0d", b"\0\0\0d", b"ab\0d"} <= outcomes, "one later write across a hole"


def test_overlapping_writes_may_land_in_the_wrong_order() -> None:
    disk = disk_with_writes((0, b"1111"), (2, b"2222"))
    assert b"111122" in found(disk, PAIRS)
    apart = disk_with_writes((0, b"11"), (2, b"22"))
    assert set(found(apart, PAIRS)) == {b"", b"1122", b"\0\x0022"}


def test_pairs_are_made_between_barriers_only() -> None:
    disk = disk_with_writes((0, b"a"))
    file = disk.open(A, OpenMode.UPDATE)
    file.sync_data()
    file.write(1, [b"b"])
    assert found(disk, PAIRS) == []


def test_pairs_are_bounded_to_the_latest_effects() -> None:
    disk = disk_with_writes(*[(index, b"x") for index in range(100)])
    plan = CrashPlan(frozenset({CrashKind.PAIR}), pair_effects_max=4)
    assert len(found(disk, plan)) <= 3 * 6


def test_a_torn_write_stops_at_every_byte_with_each_kind_of_rest() -> None:
    disk = disk_with_writes((0, b"abc"))
    outcomes = found(disk, TORN)
    assert len(outcomes) == 9
    assert {b"", b"a", b"ab"} <= set(outcomes), "absent"
    assert {b"\0\0\0", b"a\0\0", b"ab\0"} <= set(outcomes), "zeros"
    garbage = set(outcomes) - {b"", b"a", b"ab", b"\0\0\0", b"a\0\0", b"ab\0"}
    assert sorted(len(each) for each in garbage) == [3, 3, 3]
    assert outcomes == found(disk, TORN), "the same seed gives the same garbage"


def test_zeros_over_zeros_are_not_tried_twice() -> None:
    disk = disk_with_writes((0, b"abc"), base=bytes(8))
    assert len(found(disk, TORN)) == 6
    over_bytes = disk_with_writes((0, b"abc"), base=b"12345678")
    assert set(found(over_bytes, TORN)) >= {b"12345678", b"\0\0\x0045678"}


def test_only_the_last_write_is_torn_and_the_earlier_ones_are_whole() -> None:
    disk = disk_with_writes((0, b"first"), (5, b"xy"))
    plan = CrashPlan(frozenset({CrashKind.TORN}), rests=(Rest.ABSENT,))
    assert found(disk, plan) == [b"first", b"firstx"]


def test_the_chosen_rests_are_the_ones_tried() -> None:
    disk = disk_with_writes((0, b"ab"), base=bytes(2))
    plan = CrashPlan(frozenset({CrashKind.TORN}), rests=(Rest.ZEROS,))
    assert found(disk, plan) == [b"\0\0", b"a\0"]


def test_long_writes_are_torn_around_sector_borders_of_the_file() -> None:
    points = tear_points(offset=500, length=2000, every_byte_max=100)
    assert list(points) == [
        0,
        1,
        11,
        12,
        13,
        523,
        524,
        525,
        1035,
        1036,
        1037,
        1547,
        1548,
        1549,
        1999,
    ]
    assert list(tear_points(0, 4, every_byte_max=4)) == [0, 1, 2, 3]


def test_a_block_in_the_middle_of_a_write_may_be_missing() -> None:
    data = b"a" * 512 + b"b" * 512 + b"c" * 512
    disk = disk_with_writes((0, data))
    outcomes = found(disk, CrashPlan.of(CrashKind.LOST_BLOCK))
    assert outcomes == [bytes(512) + data[512:], data[:512] + bytes(512) + data[1024:]]


def test_random_states_are_the_same_for_the_same_seed_and_differ_for_another() -> None:
    disk = disk_with_writes(*[(index * 4, b"abcd") for index in range(20)])
    assert found(disk, RANDOM) == found(disk, RANDOM)
    other = CrashPlan(frozenset({CrashKind.RANDOM}), seed=1)
    assert found(disk, RANDOM) != found(disk, other)


def test_no_plan_yields_the_same_choice_twice_at_one_point() -> None:
    disk = disk_with_writes((0, b"a"), (1, b"b"))
    kinds = frozenset({CrashKind.NONE, CrashKind.ALL, CrashKind.SINGLE_DROP, CrashKind.PAIR})
    states = found(disk, CrashPlan(kinds))
    assert sorted(states) == [b"", b"\0b", b"a", b"ab"]
