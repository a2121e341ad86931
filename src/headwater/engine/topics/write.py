"""One append on its way to the log, with the repeats of it that wait for the same answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headwater.core.errors import HeadwaterError
from headwater.core.results import Appended
from headwater.engine.pending import Pending
from headwater.engine.state.topic import Topic
from headwater.engine.topics.record_encoding import EncodedRecords


class Keyed(NamedTuple):
    """An idempotency key, and the records it stands for."""

    key: bytes
    first_seq: int
    last_seq: int


class PendingAppend(Pending[Appended]):
    """One append of one or more records to any partition."""

    keys: Sequence[Keyed] = ()
    """One for all of its records; or several, when it stands for writes of others."""
    expires_ts = 0
    sync_us = 0
    """How long the sync took that this write waited for."""
    throttle_us = 0
    """How much longer its group waited for company because of pressure, at most."""
    _followers: list[tuple[PendingAppend, int | None]] | None = None
    """Each with the last seq of what it repeats, when that is a part."""

    def __init__(self, first_seq: int, ts: int) -> None:
        self.first_seq = first_seq
        self.ts = ts

    def follow(self, follower: PendingAppend, last_seq: int | None = None) -> None:
        """A repeat of this write waits for it and gets the same answer, marked as a repeat. A
        repeat of a part gets that part: from the follower's own first seq to this one."""
        if self._followers is None:
            self._followers = []
        self._followers.append((follower, last_seq))

    def succeed(self, result: Appended) -> None:
        self.result = result
        if self.on_done is not None:
            self.on_done(self)
        if self._followers is not None:
            repeated = result._replace(deduped=True)
            for follower, last_seq in self._followers:
                first_seq = follower.first_seq
                follower.succeed(
                    repeated
                    if last_seq is None
                    else repeated._replace(first_seq=first_seq, last_seq=last_seq)
                )

    def fail(self, error: HeadwaterError) -> None:
        super().fail(error)
        for follower, _ in self._followers or ():
            follower.fail(error)


class Write(PendingAppend):
    """An append to a topic of the engine."""

    buffer = b""
    offsets: Sequence[int] = ()
    lengths: Sequence[int] = ()
    """Size each record will have in a segment."""
    flags: Sequence[int] = ()
    tags: Sequence[bytes] = ()
    refusal: HeadwaterError | None = None
    """Why the log did not even take it: it has no seqs."""
    created = False
    writers = 1
    """How many writes of others it stands for."""
    waits = False
    """Its ack is held until a sync."""
    logged = True
    """Its records are in the log."""
    synced = False
    """Its ack is to wait for a sync, whatever the topic's class says of disk writes."""
    scheduled: dict[int, int] | None = None
    """When jobs of a queue may be delivered, by seq."""
    records: EncodedRecords
    """What it brings."""
    on_flushed: Callable[[], None] | None = None
    """Told that the copies in front of it in its group are durable."""

    def __init__(self, topic: Topic, first_seq: int, ts: int) -> None:
        self.topic = topic
        self.first_seq = first_seq
        self.ts = ts

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.offsets) - 1
