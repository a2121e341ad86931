"""The oracle: each broken promise is seen, and nothing else is."""

from __future__ import annotations

import pytest

from headwater.core.durability import Durability
from headwater.testing import Crash, Item, Oracle, OracleError


def item(seq: int, stream: str = "s", content: bytes | None = None) -> Item:
    return Item(stream, seq, content if content is not None else f"{stream}{seq}".encode())


def oracle_with(*, submitted: int = 5, acked: int = 3) -> Oracle:
    """One item each; the first so many acked as fsync."""
    oracle = Oracle()
    for seq in range(1, submitted + 1):
        oracle.submit(seq, [item(seq)])
        if seq <= acked:
            oracle.ack(seq)
    return oracle


@pytest.mark.parametrize("survivors", [3, 4, 5])
def test_all_acked_and_any_prefix_of_the_rest_is_right(survivors: int) -> None:
    oracle_with().check([item(seq) for seq in range(1, survivors + 1)])


def test_a_lost_acked_item_is_named() -> None:
    with pytest.raises(OracleError, match=r"lost s/3 b's3' of submission 3, acked as fsync"):
        oracle_with().check([item(1), item(2)])


def test_a_changed_item_is_shown_beside_what_was_submitted() -> None:
    differences = oracle_with().differences([item(1), item(2, content=b"?"), item(3)])
    assert "changed: s/2 b'?', submitted as s/2 b's2'" in differences


def test_an_item_out_of_nowhere_is_seen() -> None:
    recovered = [item(seq) for seq in range(1, 6)]
    assert oracle_with().differences([*recovered, item(6)]) == ["never submitted: s/6 b's6'"]


def test_a_duplicate_is_seen() -> None:
    (difference,) = oracle_with(acked=2).differences([item(1), item(2), item(2)])
    assert difference.startswith("repeated or out of order: s/2")


def test_a_wrong_order_is_seen() -> None:
    differences = oracle_with().differences([item(2), item(1), item(3)])
    assert any(each.startswith("repeated or out of order: s/1") for each in differences)


def test_a_gap_among_unacked_survivors_is_seen() -> None:
    differences = oracle_with().differences([item(1), item(2), item(3), item(5)])
    assert any(each.startswith("a gap: s/5") for each in differences)
    assert any(each.startswith("not a prefix: s/5") for each in differences)


def test_a_missing_start_is_seen_unless_it_was_trimmed_on_purpose() -> None:
    oracle = oracle_with(acked=0)
    assert oracle.differences([item(3), item(4)]) != []
    oracle.check([item(3), item(4)], floors={"s": 3})


def test_a_submission_of_several_items_is_whole_or_absent() -> None:
    oracle = Oracle()
    oracle.submit("pair", [item(1), item(1, "t")])
    oracle.check([])
    oracle.check([item(1), item(1, "t")])
    with pytest.raises(OracleError, match="'pair' is not whole: 1 of 2 items, without t/1"):
        oracle.check([item(1)])


def test_streams_are_prefixes_of_their_own() -> None:
    oracle = Oracle()
    oracle.submit(1, [item(1, "a")])
    oracle.submit(2, [item(1, "b")])
    oracle.check([item(1, "b")])


def test_a_refused_submission_must_not_appear_and_its_seq_may_be_used_again() -> None:
    oracle = Oracle()
    oracle.submit("refused", [item(1, content=b"refused")])
    oracle.refuse("refused")
    oracle.submit("again", [item(1, content=b"again")])
    oracle.ack("again")
    oracle.check([item(1, content=b"again")])
    with pytest.raises(OracleError, match="refused, and yet there"):
        oracle.check([item(1, content=b"refused")])


@pytest.mark.parametrize(
    ("durability", "crash", "may_be_lost"),
    [
        (Durability.FSYNC, Crash.POWER_LOSS, False),
        (Durability.FSYNC, Crash.KILL, False),
        (Durability.DISK, Crash.POWER_LOSS, True),
        (Durability.DISK, Crash.KILL, False),
        (Durability.MEMORY, Crash.POWER_LOSS, True),
        (Durability.MEMORY, Crash.KILL, True),
    ],
)
def test_an_ack_holds_for_the_crashes_its_class_covers(
    durability: Durability, crash: Crash, may_be_lost: bool
) -> None:
    oracle = Oracle()
    oracle.submit(1, [item(1)])
    oracle.ack(1, durability)
    assert (oracle.differences([], crash=crash) == []) is may_be_lost
    assert oracle.acked_count(crash) == (0 if may_be_lost else 1)


def test_a_crash_in_the_past_knows_only_what_had_happened_by_then() -> None:
    oracle = Oracle()
    oracle.submit(1, [item(1)], at=0)
    oracle.ack(1, at=10)
    oracle.submit(2, [item(2)], at=12)
    oracle.check([], at=9)
    with pytest.raises(OracleError, match="lost s/1"):
        oracle.check([], at=10)
    with pytest.raises(OracleError, match="never submitted: s/2"):
        oracle.check([item(1), item(2)], at=11)
    oracle.check([item(1), item(2)], at=12)


def test_an_ack_comes_once_and_not_after_a_refusal() -> None:
    oracle = oracle_with(submitted=3, acked=1)
    with pytest.raises(OracleError, match="acknowledged twice"):
        oracle.ack(1)
    with pytest.raises(OracleError, match="acknowledged and then refused"):
        oracle.refuse(1)
    oracle.refuse(2)
    with pytest.raises(OracleError, match="refused and then acknowledged"):
        oracle.ack(2)
    with pytest.raises(ValueError, match="already submitted"):
        oracle.submit(3, [])


def test_the_report_has_the_label_and_is_bounded() -> None:
    oracle = oracle_with(submitted=50, acked=50)
    with pytest.raises(OracleError) as caught:
        oracle.check([], label="crash at 7/9: torn")
    lines = str(caught.value).splitlines()
    assert lines[0] == "crash at 7/9: torn"
    assert lines[-1].strip() == "and 30 more"
    assert len(caught.value.differences) == 50


def test_long_contents_are_shortened_in_the_report() -> None:
    assert str(item(1, content=b"x" * 100)) == f"s/1 {b'x' * 24!r} and 76 bytes"
