"""A log opened for measuring, and the check that what it acknowledged is really there."""

from __future__ import annotations

from pathlib import Path

from bench.payloads import PAYLOADS
from headwater.config.wal import WalSettings
from headwater.core.clock import SystemClock
from headwater.core.durability import Durability
from headwater.disk import PosixDisk
from headwater.format.frame import FrameType, encode_frame
from headwater.recovery.topics.repair import open_wal
from headwater.wal.ticket import Listener, Ticket, resolve_quietly


class WrongResultError(Exception):
    """What was measured did not do its work; its figure is worth nothing."""


def body_of(topic_id: int, first_seq: int, count: int) -> bytes:
    """Frames of `count` records, as a producer would hand them over."""
    return b"".join(
        [
            encode_frame(FrameType.APPEND, topic_id, seq=seq, ts=seq, data=PAYLOADS[seq % 1000])
            for seq in range(first_seq, first_seq + count)
        ]
    )


class LogUnderTest:
    """One shard. Topics are writers; each writes its seqs from 1 up."""

    def __init__(
        self,
        directory: Path,
        settings: WalSettings,
        listener: Listener = resolve_quietly,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._open = open_wal(PosixDisk(), directory, self._settings, SystemClock(), listener)
        self._open.start()
        self.shard = self._open.wal.shards[0]
        self.counters = self.shard.counters
        self.heads: dict[int, int] = {}
        """Topic -> last seq that was acknowledged."""

    def ticket(
        self, topic_id: int, first_seq: int, count: int, durability: Durability, context: object
    ) -> Ticket:
        return Ticket(body_of(topic_id, first_seq, count), count, durability, context=context)

    def close_and_check(self) -> None:
        """Close, recover, and find every acknowledged record: right seq, right bytes, in order."""
        self._open.close()
        opened = open_wal(PosixDisk(), self._directory, self._settings, SystemClock())
        try:
            found: dict[int, int] = {}
            for group in opened.replay():
                for frame in group.frames():
                    seq = found.get(frame.topic_id, 0) + 1
                    if frame.seq != seq or frame.data != PAYLOADS[seq % 1000]:
                        raise WrongResultError(f"topic {frame.topic_id}: seq {seq} is not right")
                    found[frame.topic_id] = seq
        finally:
            opened.close()
        if found != self.heads:
            raise WrongResultError("acknowledged records and records in the log differ")
