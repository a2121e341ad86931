"""What a consumer says it reads."""

from __future__ import annotations

import struct

import pytest

from headwater.wire.kafka.subscription import subscribed_topics

TWO = struct.pack(">hih", 1, 2, 6) + b"orders" + struct.pack(">h", 5) + "k\u00fche".encode()


@pytest.mark.parametrize("rest", [b"", struct.pack(">i", -1), b"whatever follows"])
def test_the_topics_of_a_consumer_are_found_in_every_version(rest: bytes) -> None:
    for version in (0, 1, 3, 9):
        metadata = struct.pack(">h", version) + TWO[2:] + rest
        assert subscribed_topics(metadata) == frozenset({"orders", "k\u00fche"})
    assert subscribed_topics(struct.pack(">hi", 0, 0)) == frozenset()


def test_of_what_is_cut_or_in_other_words_nothing_is_told() -> None:
    for end in range(len(TWO)):
        assert subscribed_topics(TWO[:end]) is None
    for wrong in (
        struct.pack(">hi", -1, 0),
        struct.pack(">hi", 0, -1),
        struct.pack(">hih", 0, 1, -1),
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hih", 0, 1, 1) + b"\xff",
    ):
        assert subscribed_topics(wrong) is None
