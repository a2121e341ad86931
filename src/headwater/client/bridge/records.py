"""Records of a cluster for comparing: a range, one of each partition, and what counts as a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.client.bridge.clusters import ANSWER_S, POLL_S, AwayError, ClusterReader, is_end

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headwater.client.bridge.settings import Cluster

TIMESTAMP_OF_PRODUCER: Final = 1


def read_range(
    cluster: Cluster, topic: str, partition: int, first: int, end: int
) -> Iterator[Message]:
    """Records of a partition from an offset on, as far as they are there."""
    reader = ClusterReader(cluster)
    try:
        reader.begin([(topic, partition, first)])
        patience = int(ANSWER_S / POLL_S)
        while first < end:
            found = reader.take(min(1_000, end - first), POLL_S)
            patience = int(ANSWER_S / POLL_S) if found else patience - 1
            if not patience:
                raise AwayError(f"{cluster} gives nothing of {topic}/{partition} from {first} on")
            for message in found:
                if is_end(message):
                    return
                if (error := message.error()) is not None:
                    raise AwayError(f"{cluster}, {topic}/{partition}: {error.str()}")
                first = (message.offset() or 0) + 1
                if first <= end:
                    yield message
    finally:
        reader.close()


def read_each(
    cluster: Cluster, positions: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], Message]:
    """One record of each partition: the one at this offset, where it is still there."""
    found: dict[tuple[str, int], Message] = {}
    if not positions:
        return found
    waiting = dict(positions)
    reader = ClusterReader(cluster, {"queued.min.messages": 1})
    try:
        reader.begin((*spot, offset) for spot, offset in positions.items())
        patience = int(ANSWER_S / POLL_S)
        while waiting:
            messages = reader.take(len(waiting), POLL_S)
            patience = int(ANSWER_S / POLL_S) if messages else patience - 1
            if not patience:
                raise AwayError(f"{cluster} gives nothing of {waiting} any more")
            for message in messages:
                spot = (message.topic() or "", message.partition() or 0)
                if (error := message.error()) is not None and not is_end(message):
                    raise AwayError(f"{cluster}, {spot[0]}/{spot[1]}: {error.str()}")
                if waiting.pop(spot, None) == message.offset() and not is_end(message):
                    found[spot] = message
    finally:
        reader.close()
    return found


class Fingerprint(NamedTuple):
    """What two records are compared by; keeps nothing of their bytes."""

    content: int
    time_kind: int
    time_ms: int


def fingerprint(message: Message) -> Fingerprint:
    kind, time_ms = message.timestamp()
    headers = tuple(tuple(each) for each in message.headers() or [])
    return Fingerprint(hash((message.key(), message.value(), headers)), kind, time_ms)


def is_copy(original: Fingerprint, copy: Fingerprint, *, any_time: bool = False) -> bool:
    """`any_time`: the destination sets times of its own without saying so in its records.

    A producer takes time 0 for none and sets the time of writing, so it cannot be copied.
    """
    return original.content == copy.content and (
        any_time
        or original.time_ms <= 0
        or TIMESTAMP_OF_PRODUCER not in (original.time_kind, copy.time_kind)
        or original.time_kind != copy.time_kind
        or original.time_ms == copy.time_ms
    )


def same_record(original: Message, copy: Message, *, any_time: bool = False) -> bool:
    return is_copy(fingerprint(original), fingerprint(copy), any_time=any_time)
