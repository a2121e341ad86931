"""Segments know whose they are: files in another's place are refused and told whose they are."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from headwater.core.errors import DamageError, ForeignFileError
from headwater.format.segment import (
    Identity,
    SegmentFile,
    identity_with_salt,
    parse_segment_file,
    seal_checks,
    seqs_of_shift,
    shift_of_seqs,
    topic_of_shift,
    unpack_identity,
)
from headwater.store.pair import whole_entries
from headwater.store.segment import Segment, Tier, UnreadableSegmentError
from headwater.store.segment_stores import LocalColdTier
from headwater.store.tier import cold_index_bytes
from headwater.store.topic_files import TopicFiles
from headwater.store.verify import Expected, FaultKind, verify_segments
from headwater.testing import FakeDisk
from tests.unit.store.records import DIRECTORY, SMALL, TOPICS, Written, read_live, topic_files

COLD = PurePosixPath("/cold")
OTHER = TOPICS / "00000009"


def new_disk() -> FakeDisk:
    return FakeDisk([TOPICS, COLD])


def written(disk: FakeDisk, directory: PurePosixPath = DIRECTORY, count: int = 10) -> Written:
    topic_id = int(directory.name, 16)
    cold = LocalColdTier(disk, COLD).topic(topic_id)
    topic = Written(TopicFiles(disk, directory, SMALL, cold=cold))
    topic.append(count, size=12 if directory == DIRECTORY else 13)
    return topic


def name(first_seq: int, suffix: str) -> str:
    return f"seg-{first_seq:016d}.{suffix}"


def forget_identity(disk: FakeDisk) -> None:
    """The index files as an earlier version wrote them."""
    for path, content in disk.files().items():
        parsed = parse_segment_file(path.name)
        if parsed is not None and parsed[1] in (SegmentFile.IDX, SegmentFile.COLD):
            entries = whole_entries(content)
            if parsed[1] is SegmentFile.COLD:
                data_bytes = int(entries["offset"][-1])
                entries = entries[:-1]
                seal_checks(entries, parsed[0])
                disk.write_file(path, cold_index_bytes(entries, parsed[0], data_bytes, None))
            else:
                seal_checks(entries, parsed[0])
                disk.write_file(path, entries.tobytes())


def move(topic: Written, position: int) -> None:
    segment = topic.segments[position]
    topic.files.copy_to_cold(segment)
    topic.put(topic.files.drop_hot(segment))


def again(disk: FakeDisk, topic: Written) -> tuple[TopicFiles, list[Segment]]:
    files = topic_files(disk, cold=LocalColdTier(disk, COLD).topic(7))
    return files, files.load(*topic.position)


def live_of(topic: Written) -> dict[int, bytes]:
    return {seq: sent.data for seq, sent in topic.sent.items() if seq not in topic.deleted}


def test_every_segment_has_an_identity_and_keeps_it_over_a_start_and_a_move() -> None:
    disk = new_disk()
    topic = written(disk)
    move(topic, 0)
    _, segments = again(disk, topic)
    assert [each.tier for each in segments] == [Tier.COLD, Tier.HOT, Tier.HOT]
    assert [each.identity for each in segments] == [each.identity for each in topic.segments]
    assert {each.identity.topic_id for each in segments if each.identity is not None} == {7}
    assert len({each.salt for each in segments}) == 3, "each has a first record of its own"


def test_segments_of_an_earlier_version_are_read_and_changed_as_before() -> None:
    disk = new_disk()
    topic = written(disk)
    move(topic, 0)
    forget_identity(disk)
    topic.files, topic.segments = again(disk, topic)
    assert [each.identity for each in topic.segments] == [None, None, None]
    topic.delete(2, 6)
    topic.append(1)
    move(topic, 1)
    files, segments = again(disk, topic)
    assert [each.identity for each in segments] == [None, None, None]
    assert read_live(files, segments) == (live_of(topic), [])
    topic.append(2)
    assert topic.segments[-1].identity is not None, "what is begun now knows"


def test_segments_of_an_earlier_version_are_noted_by_a_check_and_are_no_damage() -> None:
    disk = new_disk()
    topic = written(disk)
    expected = Expected(1, 10, 9)
    assert list(verify_segments(disk, DIRECTORY, expected, lambda _: None)) == []
    forget_identity(disk)
    (noted,) = verify_segments(disk, topic.files.directory, expected, lambda _: None)
    assert (noted.kind, noted.bad) == (FaultKind.UNNAMED, False)
    assert noted.what.startswith("3 segments of an earlier version")


def test_a_rewrite_gives_a_segment_of_an_earlier_version_an_identity() -> None:
    disk = new_disk()
    topic = written(disk)
    forget_identity(disk)
    topic.files, topic.segments = again(disk, topic)
    topic.delete(1, 2, 3)
    changed, _ = topic.files.rewrite(topic.segments[0], topic.files.index(topic.segments[0]))
    topic.put(changed)
    files, segments = again(disk, topic)
    assert segments[0].identity == changed.identity
    assert changed.identity is not None
    assert changed.identity.topic_id == 7
    assert read_live(files, segments) == (live_of(topic), [])


@pytest.mark.parametrize("first_seq", [1, 5, 9], ids=["sealed", "sealed too", "active"])
@pytest.mark.parametrize(
    ("suffixes", "told"),
    [
        (("data", "idx"), "this and its index are the segment of topic 9 (00000009)"),
        (("idx",), "this is the index of topic 9 (00000009)"),
        (("data",), "this is the data of topic 9 (00000009)"),
    ],
)
def test_files_of_another_topic_are_refused_and_told_whose_they_are(
    first_seq: int, suffixes: tuple[str, ...], told: str
) -> None:
    disk = new_disk()
    topic = written(disk)
    written(disk, OTHER)
    files = disk.files()
    for suffix in suffixes:
        at = name(first_seq, suffix)
        disk.write_file(DIRECTORY / at, files[OTHER / at])
    with pytest.raises(ForeignFileError) as caught:
        again(disk, topic)
    assert caught.value.what == told
    assert caught.value.path == DIRECTORY / name(first_seq, suffixes[0])


def test_files_of_another_range_are_refused_and_told_which_range() -> None:
    for suffix, told in (
        ("data", "this is the data of the seqs from 5 on, not from 1"),
        ("idx", "this is the index of the seqs from 5 on"),
    ):
        disk = new_disk()
        topic = written(disk)
        disk.write_file(DIRECTORY / name(1, suffix), disk.files()[DIRECTORY / name(5, suffix)])
        with pytest.raises(ForeignFileError) as caught:
            again(disk, topic)
        assert (caught.value.path, caught.value.what) == (DIRECTORY / name(1, suffix), told)


def test_a_cold_index_of_another_topic_or_range_is_refused() -> None:
    disk = new_disk()
    topic, other = written(disk), written(disk, OTHER)
    for each in (topic, other):
        move(each, 0)
        move(each, 1)
    files = disk.files()
    mine = DIRECTORY / name(1, "cold")
    for theirs, told in (
        (OTHER / name(1, "cold"), "this is the index of topic 9 (00000009)"),
        (DIRECTORY / name(5, "cold"), "this is the index of the seqs from 5 on"),
    ):
        disk.write_file(mine, files[theirs])
        with pytest.raises(ForeignFileError) as caught:
            again(disk, topic)
        assert (caught.value.path, caught.value.what) == (mine, told)


def test_a_copy_of_another_topic_in_the_cold_tier_is_refused_when_it_is_read() -> None:
    disk = new_disk()
    topic, other = written(disk), written(disk, OTHER)
    for each in (topic, other):
        move(each, 0)
    cold = COLD / "topics"
    theirs = disk.files()[cold / "00000009" / name(1, "data")]
    disk.write_file(cold / "00000007" / name(1, "data"), theirs)
    files, segments = again(disk, topic)
    with pytest.raises(UnreadableSegmentError, match="data of another segment") as caught:
        files.read(segments[0], 1, 4, files.index(segments[0]))
    assert isinstance(caught.value, DamageError)


def test_an_older_copy_of_a_segment_is_refused_by_a_delete_that_is_not_in_it() -> None:
    disk = new_disk()
    topic = written(disk)
    before = disk.files()
    topic.delete(2)
    files, segments = again(disk, topic)
    files.refuse_older(segments[0], files.index(segments[0]), 2)
    for suffix in ("data", "idx"):
        disk.write_file(DIRECTORY / name(1, suffix), before[DIRECTORY / name(1, suffix)])
    files, segments = again(disk, topic)
    with pytest.raises(ForeignFileError, match="older copy: it does not have the delete of seq 2"):
        files.refuse_older(segments[0], files.index(segments[0]), 2)
    files.refuse_older(segments[0], files.index(segments[0]), None)


def test_what_a_salt_and_a_shift_say_can_be_read_back() -> None:
    identity = Identity(1234, 5_678_901)
    assert unpack_identity(identity.pack()) == identity
    assert unpack_identity(0) is None
    assert topic_of_shift(identity.salt, identity.first) == 1234
    assert identity_with_salt(1234, identity.salt) == identity
    for seqs in (-3_000_000, -1, 0, 1, 10_000):
        assert seqs_of_shift(shift_of_seqs(seqs, identity.salt), identity.salt) == seqs
