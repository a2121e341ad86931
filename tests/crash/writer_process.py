"""A process that writes under load until it is killed, and says on a pipe what was acked.

    python -m tests.crash.writer_process DIRECTORY SHARDS

Prints one line per event: `ready RUN`, `head TOPIC SEQ` for what it found, `ack TOPIC SEQ`,
`closed` after a clean stop on SIGTERM. Each topic has one writer, as the engine has one place that
gives out seqs.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import PurePath
from types import FrameType as StackFrame

from headwater.config.wal import WalSettings
from headwater.core.clock import SystemClock
from headwater.core.durability import Durability
from headwater.core.errors import HeadwaterError
from headwater.disk import PosixDisk
from headwater.format.frame import FrameType, encode_frame
from headwater.recovery.topics.repair import OpenWal, open_wal
from headwater.wal.ticket import Ticket

TOPICS = range(1, 7)
SETTINGS = WalSettings(file_bytes=16 * 1024, zero_chunk_bytes=8 * 1024, reserve_bytes=1024)


def payload(topic: int, seq: int) -> bytes:
    """Can be told from topic and seq alone, so that a reader can check every byte."""
    return f'{{"topic":{topic},"seq":{seq}}}'.encode() * (1 + seq % 5)


class RawKafka:
    """Whole lines, one at a time, straight to the pipe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        with self._lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


def write_topic(
    log: OpenWal, topic: int, seq: int, speaker: RawKafka, stop: threading.Event
) -> None:
    durability = Durability.DISK if topic == TOPICS[-1] else Durability.FSYNC
    clock = SystemClock()
    while not stop.is_set():
        count = 1 + seq % 3
        frames = [
            encode_frame(
                FrameType.APPEND,
                topic,
                seq=seq + n,
                ts=clock.wall_ms(),
                data=payload(topic, seq + n),
            )
            for n in range(1, count + 1)
        ]
        ticket = Ticket(b"".join(frames), count, durability)
        try:
            log.wal.submit(topic, ticket)
            ticket.wait()
        except HeadwaterError as error:
            speaker.say(f"refused {topic} {error}")
            return
        seq += count
        speaker.say(f"ack {topic} {seq}")


def main(directory: str, shards: str) -> int:
    speaker = RawKafka()
    settings = WalSettings(
        shards=int(shards),
        file_bytes=SETTINGS.file_bytes,
        zero_chunk_bytes=SETTINGS.zero_chunk_bytes,
        reserve_bytes=SETTINGS.reserve_bytes,
    )
    stop = threading.Event()

    def on_signal(number: int, frame: StackFrame | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    try:
        log = open_wal(PosixDisk(), PurePath(directory), settings, SystemClock())
    except HeadwaterError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    heads = dict.fromkeys(TOPICS, 0)
    for group in log.replay():
        for frame in group.frames():
            heads[frame.topic_id] = frame.seq
    log.start()
    for topic, seq in heads.items():
        speaker.say(f"head {topic} {seq}")
    speaker.say(f"ready {log.recovered.run}")
    writers = [
        threading.Thread(target=write_topic, args=(log, topic, seq, speaker, stop))
        for topic, seq in heads.items()
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    log.close()
    speaker.say("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
