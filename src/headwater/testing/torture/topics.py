"""Topics over HTTP: single writes and batches, keys, expected heads, deletes, limits, readers."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from headwater.testing.torture.actor import Actor, LedgerCheck, Load
from headwater.testing.torture.http_client import (
    HttpClient,
    HttpReply,
    NoReplyError,
    NotSentError,
    topic_path,
)
from headwater.testing.torture.outcome import RunOutcome
from headwater.testing.torture.reading import diff, gap_of, read_topic, stored_all
from headwater.testing.torture.topic_ledger import Followed, LedgerWrite, TopicLedger, record_data

DISK_CLASS_GRACE_S: Final = 5.0
"""What the disk class answered so long before a loss of power was synced by then. The log syncs ten
times a second; the machine that runs this may be busy."""
BATCH_MAX: Final = 20
TAGS: Final = ("red", "green", "blue")


@dataclass(frozen=True, slots=True)
class WriteKind:
    """One topic, and how it is used."""

    name: str
    writers: int = 1
    has_keys: bool = False
    has_deletes: bool = False
    expects_head: bool = False
    durability: str = "fsync"
    cap_records: int = 0
    ttl_ms: int = 0

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"durability": self.durability}
        if self.cap_records:
            settings["cap_records"] = self.cap_records
        if self.ttl_ms:
            settings["ttl_ms"] = self.ttl_ms
        return settings


KINDS: Final = (
    WriteKind("t-plain", writers=2),
    WriteKind("t-keyed", has_keys=True),
    WriteKind("t-deleted", writers=2, has_deletes=True),
    WriteKind("t-expected", writers=2, expects_head=True),
    WriteKind("t-capped", cap_records=300),
    WriteKind("t-aged", ttl_ms=600_000),
    WriteKind("t-disk", durability="disk"),
    WriteKind("t-memory", durability="memory"),
)


class TopicActor(Actor):
    name = "topics"

    def __init__(self, kinds: tuple[WriteKind, ...] = KINDS) -> None:
        self._kinds = kinds
        self.ledgers = {
            kind.name: TopicLedger(kind.name, kind.durability, kind.cap_records, kind.ttl_ms)
            for kind in kinds
        }
        self._turns = itertools.count(1)
        self._cursors: dict[str, int] = {}

    def prepare(self, load: Load) -> None:
        with load.client() as client:
            for kind in self._kinds:
                client.make(topic_path(kind.name), kind.settings())

    def begin(self, load: Load) -> None:
        for kind in self._kinds:
            for number in range(kind.writers):
                writer = f"{kind.name}/{number}/{load.round}"
                load.begin_steps(writer, partial(self._write, load, kind, writer))
            if kind.has_deletes:
                load.begin_steps(
                    f"{kind.name}/deletes", partial(self._delete, load, kind), pause_s=0.3
                )
            load.begin_steps(f"{kind.name}/reader", partial(self._follow, load, kind), pause_s=0.05)

    def lose_power(self, since: float) -> None:
        for ledger in self.ledgers.values():
            ledger.lose_power(since, since - DISK_CLASS_GRACE_S)
        self._cursors.clear()

    def check(self, check: LedgerCheck) -> None:
        with check.client() as client:
            for kind in self._kinds:
                ledger = self.ledgers[kind.name]
                reading = read_topic(client, kind.name)
                check.report(kind.name, ledger.check(reading, check.end))
                check.load.tally.add("records compared", len(reading.records))
                if kind.has_keys and not check.is_last:
                    self._send_again(client, check, ledger)

    # -- writes

    def _write(
        self, load: Load, kind: WriteKind, writer: str, client: HttpClient, random: Random
    ) -> None:
        ledger = self.ledgers[kind.name]
        count = 1 if random.random() < 0.7 else random.randint(2, BATCH_MAX)
        turn = next(self._turns)
        tags = tuple(random.choice((None, *TAGS)) for _ in range(count))
        write = LedgerWrite(f"{kind.name}.{turn}", tags, writer, turn, time.monotonic())
        write.node = random.choice((None, writer))
        if kind.has_keys:
            write.idempotency_key = write.identity
        body = body_of(write, random.choice((0, 20, 300)))
        if kind.expects_head:
            body["expect_head_seq"] = ledger.head_max
        if random.random() < 0.05:
            # Refused as a whole: a tag that is too long stands at the end.
            body["records"].append({"data": 1, "tag": "x" * 300})
        send_write(load, ledger, write, client, body)

    def _send_again(self, client: HttpClient, check: LedgerCheck, ledger: TopicLedger) -> None:
        """Unknown writes under their keys: what was there is answered, what was not is written."""
        for write in ledger.unknown_with_keys():
            ledger.resend(write.identity)
            answer = client.post(topic_path(ledger.name), body_of(write, 0))
            resolve_write(check.load, ledger, write, answer)
            check.load.tally.add("writes sent again")

    # -- deletes and readers

    def _delete(self, load: Load, kind: WriteKind, client: HttpClient, random: Random) -> None:
        ledger = self.ledgers[kind.name]
        before_seq = None
        tag = random.choice(TAGS)
        if random.random() < 0.4:
            before_seq = max(ledger.head_max - random.randint(0, 400), 1)
        if before_seq is not None and random.random() < 0.5:
            body: dict[str, Any] = {"before_seq": before_seq}
            delete = ledger.send_delete(before_seq, None, time.monotonic())
        else:
            body = {"match": ["tag", "Eq", tag]}
            if before_seq is not None:
                body["before_seq"] = before_seq
            delete = ledger.send_delete(before_seq, tag, time.monotonic())
        try:
            answer = client.post(topic_path(kind.name, "/delete"), body)
        except NoReplyError:
            ledger.resolve_delete(delete, RunOutcome.UNKNOWN, float("inf"))
            raise
        except NotSentError:
            ledger.resolve_delete(delete, RunOutcome.REFUSED, time.monotonic())
            raise
        outcome = RunOutcome.ACKED if answer.is_ok else RunOutcome.UNKNOWN
        if answer.is_refusal:
            outcome = RunOutcome.REFUSED
        ledger.resolve_delete(delete, outcome, time.monotonic())
        load.tally.add(f"deletes {outcome.value}")

    def _follow(self, load: Load, kind: WriteKind, client: HttpClient, random: Random) -> None:
        cursor = self._cursors.get(kind.name, 0)
        if random.random() < 0.05:
            cursor = 0
        answer = diff(
            client, kind.name, cursor, random.choice((1, 50, 1000)), random.choice((0, 0, 50))
        )
        if not answer.is_ok:
            return
        gap = gap_of(answer.body)
        if gap is not None and gap.reason == "recreated":
            load.errors.append(f"{kind.name}: {gap}, cursor {cursor}")
        records = stored_all(answer.body["records"])
        to_seq = int(answer.body["next_from_seq"])
        gaps = [] if gap is None else [gap]
        self.ledgers[kind.name].follow(Followed(cursor, to_seq, records, gaps, time.monotonic()))
        self._cursors[kind.name] = to_seq
        load.tally.add("records followed", len(records))


def body_of(write: LedgerWrite, padding: int) -> dict[str, Any]:
    records = []
    for index, tag in enumerate(write.tags):
        record: dict[str, Any] = {"data": record_data(write.identity, index, padding)}
        if tag is not None:
            record["tag"] = tag
        records.append(record)
    body: dict[str, Any] = {"records": records}
    if write.node is not None:
        body["node"] = write.node
    if write.idempotency_key is not None:
        body["idempotency_key"] = write.idempotency_key
    return body


def send_write(
    load: Load, ledger: TopicLedger, write: LedgerWrite, client: HttpClient, body: dict[str, Any]
) -> None:
    """Send it, and have the ledger know what became of it."""
    ledger.send(write)
    try:
        answer = client.post(topic_path(ledger.name), body)
    except NoReplyError:
        ledger.lose(write.identity, is_ordered=load.server_left.is_set())
        load.tally.add("writes unknown")
        raise
    except NotSentError:
        ledger.refuse(write.identity)
        raise
    resolve_write(load, ledger, write, answer)


def resolve_write(load: Load, ledger: TopicLedger, write: LedgerWrite, answer: HttpReply) -> None:
    """What the answer to a write says."""
    if answer.is_ok:
        body = answer.body
        ledger.ack(write.identity, int(body["first_seq"]), int(body["last_seq"]), time.monotonic())
        ledger.note_head(int(body["head_seq"]))
        load.tally.add("writes acked")
        load.tally.add("records acked", write.count)
    elif answer.is_refusal:
        ledger.refuse(write.identity)
        load.tally.add("writes refused")
    else:
        ledger.lose(write.identity)
        load.tally.add("writes unknown")
        if answer.status == 500:
            load.errors.append(f"{ledger.name}: a write was answered {answer}")
