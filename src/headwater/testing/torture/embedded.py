"""The embedded library between rounds: a process opens the directory, writes, and is killed.

Run as `python -m headwater.testing.torture.embedded DIR NAME SHARDS`: it says on stdout what it is
about to write (`send IDENTITY TAG...`) and what was acknowledged (`ack IDENTITY FIRST LAST`).
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from random import Random
from typing import Final

from headwater.testing.torture.actor import Actor, LedgerCheck, Load
from headwater.testing.torture.http_client import topic_path
from headwater.testing.torture.reading import read_topic
from headwater.testing.torture.topic_ledger import LedgerWrite, TopicLedger, record_data

TOPIC: Final = "e-embedded"
OPEN_S: Final = 120.0
WRITING_S: Final = (0.2, 2.0)


class EmbeddedActor(Actor):
    name = "embedded"

    def __init__(self) -> None:
        self.ledger = TopicLedger(TOPIC)
        self._turn = 0
        self._runs = 0

    def prepare(self, load: Load) -> None:
        with load.client() as client:
            client.make(topic_path(TOPIC), {})

    def own(self, load: Load) -> list[str]:
        """No other process has the directory now."""
        random = load.random("embedded")
        words = [sys.executable, "-m", "headwater.testing.torture.embedded", str(load.data)]
        self._runs += 1
        words += [f"{TOPIC}.{self._runs}", str(random.choice((1, 2, 4)))]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.PIPE
        )
        opened = threading.Event()
        reader = threading.Thread(target=self._listen, args=(process, opened, load), daemon=True)
        reader.start()
        is_open = opened.wait(OPEN_S)
        time.sleep(random.uniform(*WRITING_S))
        ended = process.poll()
        process.kill()
        reader.join(OPEN_S)
        assert process.stderr is not None
        said = process.stderr.read()
        process.wait()
        load.tally.add("embedded processes killed")
        if not is_open or ended is not None:
            return [f"E: the embedded library ended by itself ({ended}): {said[-2_000:]}"]
        return []

    def _listen(self, process: subprocess.Popen[str], opened: threading.Event, load: Load) -> None:
        assert process.stdout is not None
        writer = f"embedded/{load.round}"
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # cut by the kill: not said
            word, *rest = line.split()
            if word == "open":
                opened.set()
            elif word == "send":
                self._turn += 1
                tags = tuple(None if tag == "-" else tag for tag in rest[1:])
                self.ledger.send(LedgerWrite(rest[0], tags, writer, self._turn, time.monotonic()))
            elif word == "ack":
                self.ledger.ack(rest[0], int(rest[1]), int(rest[2]), time.monotonic())
                load.tally.add("embedded writes acked")
        opened.set()

    def lose_power(self, since: float) -> None:
        self.ledger.lose_power(since, since)

    def check(self, check: LedgerCheck) -> None:
        with check.client() as client:
            check.report(TOPIC, self.ledger.check(read_topic(client, TOPIC), check.end))


def main() -> None:
    """What the process does."""
    import headwater
    from headwater.config.engine import EngineSettings
    from headwater.config.store import SegmentSettings
    from headwater.config.wal import WalSettings

    directory, name, shards = sys.argv[1:]
    random = Random(name)
    settings = EngineSettings(
        wal=WalSettings(shards=int(shards), file_bytes=1_048_576),
        segments=SegmentSettings(segment_max_events=500),
        checkpoint_interval_ms=100,
        checkpoint_tail_bytes=10_000,
    )
    with headwater.open(directory, settings=settings) as database:
        say("open")
        number = 0
        while True:
            number += 1
            tags = [random.choice(("-", "red", "green")) for _ in range(random.choice((1, 1, 10)))]
            identity = f"{name}.{number}"
            say("send", identity, *tags)
            records = [
                {
                    "data": record_data(identity, index, 50),
                    **({} if tag == "-" else {"tag": tag}),
                }
                for index, tag in enumerate(tags)
            ]
            done = database.append(TOPIC, records)
            say("ack", identity, str(done.first_seq), str(done.last_seq))


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
