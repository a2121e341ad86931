"""The cold tier in an object store, against a real S3 server in a process of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from itertools import count

import pytest

from headwater.core.errors import RequestError, StorageError, UnavailableError
from headwater.format.segment import SegmentPart
from headwater.store.cold_tier import ObjectColdTier, open_cold_tier
from headwater.testing import FakeDisk
from tests.rig.s3_server import make_bucket, s3_server, url_of
from tests.unit.store.records import TOPICS, Written, read_live, topic_files
from tests.unit.store.store_promises import check_store

MISSING = [name for name in ("moto", "pyarrow") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)} for an S3 server"),
]

BUCKETS = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """`host:port` of a running server."""
    with s3_server() as address:
        yield address


@pytest.fixture
def tier(server: str) -> ObjectColdTier:
    """A cold tier in a bucket of its own."""
    bucket = f"bucket-{next(BUCKETS)}"
    make_bucket(server, bucket)
    cold = open_cold_tier(FakeDisk(), url_of(server, bucket))
    assert isinstance(cold, ObjectColdTier)
    return cold


@pytest.mark.claims(286, 287, 295)
def test_an_object_store_keeps_the_promises_of_every_store(tier: ObjectColdTier) -> None:
    check_store(tier.topic(7))


@pytest.mark.claims(285)
def test_topics_do_not_see_each_other_in_the_bucket(tier: ObjectColdTier) -> None:
    tier.topic(1).put(5, b"one", b"i")
    tier.topic(16).put(6, b"two", b"i")
    assert list(tier.topic(1).list()) == [5]
    assert list(tier.topic(16).list()) == [6]
    assert list(tier.topic(2).list()) == []


@pytest.mark.claims(288, 291)
def test_a_segment_moves_to_the_object_store_and_reads_as_before(tier: ObjectColdTier) -> None:
    disk = FakeDisk([TOPICS])
    topic = Written(topic_files(disk, cold=tier.topic(7)))
    topic.append(10, size=2_000)
    for segment in topic.segments[:2]:
        topic.files.copy_to_cold(segment)
        topic.put(topic.files.drop_hot(segment))
    topic.delete(2, 6)
    expected = {seq: sent.data for seq, sent in topic.sent.items() if seq not in (2, 6)}
    assert read_live(topic.files, topic.segments) == (expected, [])
    again = topic_files(disk, cold=tier.topic(7))
    segments = again.load(*topic.position)
    assert read_live(again, segments) == (expected, [])
    again.drop(*segments[:2])
    assert list(tier.topic(7).list()) == []


def test_a_part_of_a_cold_segment_fetches_only_that_part(tier: ObjectColdTier) -> None:
    store = tier.topic(7)
    store.put(1, bytes(range(256)) * 4096, b"i")
    assert store.read_range(1, SegmentPart.DATA, 256 * 4000 + 5, 3) == bytes((5, 6, 7))


def test_a_missing_bucket_is_told_and_changes_nothing(server: str) -> None:
    store = ObjectColdTier(url_of(server, "no-such-bucket")).topic(7)
    with pytest.raises((StorageError, UnavailableError)):
        store.put(1, b"data", b"idx")


@pytest.mark.slow
def test_a_server_that_is_away_is_an_error_that_may_pass() -> None:
    store = ObjectColdTier(url_of("127.0.0.1:1", "bucket")).topic(7)
    with pytest.raises(UnavailableError, match="did not answer"):
        store.read_range(1, SegmentPart.DATA, 0, 1)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(RequestError):
        ObjectColdTier("s3://bucket/x?no_such_option=1")


def test_a_tier_tells_which_topics_it_holds(tier: ObjectColdTier) -> None:
    assert list(tier.topic_ids()) == []
    for topic_id in (300, 7):
        tier.topic(topic_id).put(1, b"data", b"idx")
    assert list(tier.topic_ids()) == [7, 300]
