"""The bytes of the shared log: names, entries, keys, batch headers, the checkpoint."""

from __future__ import annotations

import struct

import msgspec
import numpy
import pytest
from blake3 import blake3

from headwater.config.kafka import KafkaSettings
from headwater.core.errors import FormatError, NewerFormatError, RequestError
from headwater.format.checksum import checksum64
from headwater.format.crc32c import crc32c
from headwater.format.kafka import events
from headwater.format.kafka.batch import (
    HEADER_BYTES,
    BatchError,
    BatchKindError,
    CodecError,
    MagicError,
    check_batch,
    read_sound,
    seal_batch,
    split_batches,
)
from headwater.format.kafka.checkpoint import (
    KafkaCheckpoint,
    SegmentMeta,
    decode_checkpoint,
    encode_checkpoint,
)
from headwater.format.kafka.entry import (
    ENTRY,
    ENTRY_BYTES,
    count_entries,
    entry_key,
    find_runs,
    group_by_key,
    key_text,
    pack_entries,
    read_entries,
    split_key,
    topic_hash,
)
from headwater.format.kafka.events import INTERNAL_KEY, decode_event, encode_event
from headwater.format.kafka.names import KafkaFile, index_name, log_name, parse_name
from headwater.format.kafka.records import NewRecord, encode_batch

KEY = entry_key(7, topic_hash(7, "orders"), 3)


@pytest.mark.claims(*range(11, 17), 18, 19, 21)
def test_an_entry_is_forty_packed_little_endian_bytes() -> None:
    packed = pack_entries(1, 2, 3, KEY, 1)
    assert ENTRY_BYTES == len(packed) == 40
    assert dict(ENTRY.offsets()) == {
        "segment_id": 0,
        "physical_offset": 4,
        "length": 8,
        "org_id": 12,
        "topic_hash": 20,
        "partition": 36,
    }
    assert packed == struct.pack("<IIIQ16sI", 1, 2, 3, 7, topic_hash(7, "orders"), 3)
    assert len(pack_entries(1, 2, 3, KEY, 1_000_000)) == 40_000_000
    entry = read_entries(packed, 1)[0]
    assert [int(entry[name]) for name in ("segment_id", "physical_offset", "length")] == [1, 2, 3]


@pytest.mark.claims(3, 20)
def test_every_place_in_the_largest_segment_fits_an_entry() -> None:
    assert KafkaSettings().segment_bytes == 2**30 < 2**32
    with pytest.raises(RequestError):
        KafkaSettings(segment_bytes=2**30 + 1)


@pytest.mark.claims(8)
def test_files_are_numbered_in_decimal_without_padding() -> None:
    assert [log_name(0), index_name(12)] == ["0.log", "12.oidx"]
    assert parse_name("0.log") == (0, KafkaFile.LOG)
    assert parse_name("12.oidx") == (12, KafkaFile.INDEX)
    for other in ("00.log", "1.logs", "-1.log", "x.oidx", "checkpoint", "1.oidx.new"):
        assert parse_name(other) is None


@pytest.mark.claims(17, 24)
def test_the_hash_is_keyed_by_the_organisation() -> None:
    salt = (7).to_bytes(8, "little")
    plain = blake3(salt + b"orders", key=salt + bytes(24)).digest(length=16)
    assert topic_hash(7, "orders") == plain
    assert len({topic_hash(org, "orders") for org in range(100)}) == 100
    text = key_text(*split_key(KEY))
    assert text == f"7-{int.from_bytes(plain, 'little')}-3"


def test_runs_and_their_keys_are_found_in_any_mixture() -> None:
    source = numpy.random.default_rng(1)
    keys = [entry_key(org, topic_hash(org, "t"), part) for org in (1, 2) for part in range(3)]
    expected: dict[bytes, list[tuple[int, int]]] = {}
    pieces, position = [], 0
    for batch in range(500):
        key, count = keys[source.integers(len(keys))], int(source.integers(1, 5))
        pieces.append(pack_entries(0, batch, 9, key, count))
        expected.setdefault(key, []).append((position, count))
        position += count
    buffer = b"".join(pieces) + bytes(40 * 100)
    assert count_entries(buffer) == position
    runs = find_runs(read_entries(buffer, position))
    found = {
        key: list(zip(runs.starts[own].tolist(), runs.counts[own].tolist(), strict=True))
        for key, own in group_by_key(runs)
    }
    assert found == expected


def test_keys_that_sort_alike_are_kept_apart() -> None:
    # The first half of the hash and the partition are equal: only the rest differs.
    one = entry_key(1, b"\1" * 8 + b"\2" * 8, 0)
    two = entry_key(1, b"\1" * 8 + b"\3" * 8, 0)
    buffer = b"".join(pack_entries(0, at, 9, key, 2) for at, key in enumerate([one, two] * 3))
    found = {key: own.tolist() for key, own in group_by_key(find_runs(read_entries(buffer, 12)))}
    assert found == {one: [0, 2, 4], two: [1, 3, 5]}


def sound() -> bytearray:
    return bytearray(encode_batch([NewRecord(1, b"k", b"v"), NewRecord(2, None, b"w")]))


def sealed(attributes: int = 0, delta: int = 1, count: int = 2, *, producer: int = -1) -> bytes:
    """A batch with a right CRC around whatever else is wrong with it."""
    batch = bytearray(seal_batch(bytes(sound())[HEADER_BYTES:], 2, 1))
    struct.pack_into(">hi", batch, 21, attributes, delta)
    struct.pack_into(">q", batch, 43, producer)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def test_every_flipped_byte_that_the_crc_covers_is_found() -> None:
    batch = sound()
    check_batch(batch)
    for at in range(8, len(batch)):
        if 12 <= at < 16:
            continue  # the leader epoch, which the log writes itself
        damaged = bytearray(batch)
        damaged[at] ^= 0x20
        with pytest.raises(BatchError):
            check_batch(damaged)


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (b"", BatchError),
        (bytes(sound())[:-1], BatchError),
        (bytes(sound()) + b"\0", BatchError),
        (bytes(sound())[:16] + b"\1" + bytes(sound())[17:], MagicError),
        (sealed(attributes=5), CodecError),
        (sealed(attributes=0x10), BatchKindError),
        (sealed(attributes=0x20), BatchKindError),
        (sealed(count=0, delta=-1), BatchError),
        (sealed(count=3), BatchError),
        (sealed(delta=5), BatchError),
        (sealed(count=2**31 - 1, delta=2**31 - 2), BatchError),
        (sealed(attributes=1, count=2**31 - 1, delta=2**31 - 2), BatchError),
        (sealed(attributes=1, count=9_999, delta=9_998), BatchError),
        (sealed(producer=5), BatchError),
    ],
)
def test_a_batch_that_cannot_be_is_refused(batch: bytes, error: type[BatchError]) -> None:
    with pytest.raises(error):
        check_batch(batch)


def test_batches_of_one_request_are_split_by_their_lengths() -> None:
    one, two = bytes(sound()), bytes(encode_batch([NewRecord(1, None, b"x" * 99)]))
    assert [bytes(batch) for batch in split_batches(one + two)] == [one, two]
    for cut in (1, 60, len(one) + 1, len(one) + 61):
        with pytest.raises(BatchError):
            split_batches((one + two)[:cut])
    with pytest.raises(BatchError):
        split_batches(one[:8] + b"\xff\xff\xff\xff" + one[12:])


MEMBER = events.GroupMember(
    "m-1", "one", "client", "/::1", 10**7, 6 * 10**7, (("range", b"\0r"), ("sticky", b"")), b"\0a"
)
EVENTS: list[events.AnyEvent] = [
    events.TopicMadeEvent(1, "orders", b"i" * 16, 3, {"retention.ms": "5", "x": "y" * 300}),
    events.TopicDroppedEvent(b"i" * 16),
    events.PartitionsAdded(b"i" * 16, 9),
    events.ConfigsSet(b"i" * 16, {}),
    events.LogStartMoved(b"i" * 16, 1, 2**40),
    events.OffsetsCommitted(1, "g", (events.OffsetRow("t", 0, 5, -1, "m", 7),)),
    events.OffsetsForgotten(1, "g", (("t", 0),)),
    events.GroupForgotten(1, "g"),
    events.GroupMembership(1, "g", 7, "consumer", "range", MEMBER.member_id, (MEMBER,)),
    events.GroupMembership(1, "g", 8),
    events.ProducerIdsTaken(1000),
    events.Synced(2**40),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_are_sound_batches_of_our_own(event: events.AnyEvent) -> None:
    batch = encode_event(event, 1_700_000_000_000)
    assert read_sound(batch).record_count == check_batch(batch).record_count == 1
    assert decode_event(batch) == event
    assert split_key(INTERNAL_KEY)[0] == 0


def test_an_event_of_a_later_version_is_told_from_ours() -> None:
    batch = encode_event(events.GroupForgotten(1, "g"), 1).replace(b"group_forgotten", b"g" * 15)
    with pytest.raises(FormatError):
        decode_event(batch)


def test_a_checkpoint_is_whole_or_refused() -> None:
    checkpoint = KafkaCheckpoint(5, (SegmentMeta(0, 0, 5, 77, 1, 0),), next_producer_id=3)
    data = encode_checkpoint(checkpoint)
    assert decode_checkpoint(data) == checkpoint
    for cut in range(len(data)):
        with pytest.raises(FormatError):
            decode_checkpoint(data[:cut])
    with pytest.raises(NewerFormatError):
        decode_checkpoint(data[:8] + b"\2" + data[9:])


def test_a_checkpoint_of_earlier_software_is_read_and_written_as_it_was() -> None:
    """Members of groups came later; whoever has none writes what was always written."""
    fields = (5, ((0, 0, 5, 77, 1, 0, None),), (), ((1, "g", ()),), 3, True)
    body = msgspec.msgpack.encode(fields)
    data = encode_checkpoint(KafkaCheckpoint())
    data = data[:16] + struct.pack("<QQ", len(body), checksum64(body)) + body
    found = decode_checkpoint(data)
    assert (found.next_producer_id, found.clean, found.memberships) == (3, True, ())
    assert encode_checkpoint(found) == data


def test_a_checkpoint_has_the_members_of_groups() -> None:
    settled = events.GroupMembership(1, "g", 7, "consumer", "range", MEMBER.member_id, (MEMBER,))
    checkpoint = KafkaCheckpoint(5, memberships=(settled, settled))
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint
