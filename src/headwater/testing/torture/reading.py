"""Reading topics over HTTP: everything, a stretch behind a cursor, and server-sent events."""

from __future__ import annotations

import http.client
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

from headwater.core.records import Record
from headwater.core.results import Diff
from headwater.engine.database import Database
from headwater.engine.read_only import ReadOnlyDatabase
from headwater.testing.torture.actor import Load
from headwater.testing.torture.http_client import HttpClient, HttpReply, NoReplyError, topic_path
from headwater.testing.torture.topic_ledger import SeenGap, Stored, TopicReading

PAGE = 1000


def stored(record: Mapping[str, Any]) -> Stored:
    data = record["data"]
    return Stored(
        int(record["$seq"]),
        data if isinstance(data, dict) else {"?": data},
        record.get("$tag"),
        record.get("$node"),
    )


def gap_of(answer: Mapping[str, Any]) -> SeenGap | None:
    tombstone = answer.get("tombstone")
    if not isinstance(tombstone, dict):
        return None
    return SeenGap(int(tombstone["gap_from"]), int(tombstone["gap_to"]), str(tombstone["reason"]))


def diff(
    client: HttpClient, topic: str, from_seq: int, limit: int = PAGE, wait_ms: int = 0
) -> HttpReply:
    body = {"from_seq": from_seq, "limit": limit, "wait_ms": wait_ms, "include_tags": True}
    return client.post(topic_path(topic, "/diff"), body)


def read_topic(client: HttpClient, topic: str) -> TopicReading:
    """From the beginning to the end; no client should be writing."""
    reading = TopicReading()
    for page in pages(client, topic):
        reading.records += map(stored, page["records"])
        gap = gap_of(page)
        if gap is not None:
            reading.gaps.append(gap)
        reading.head_seq, reading.earliest_seq = int(page["head_seq"]), int(page["earliest_seq"])
    reading.at = time.monotonic()
    return reading


def pages(client: HttpClient, topic: str) -> Iterator[dict[str, Any]]:
    """Stretch by stretch, until one says that it is the last."""
    cursor, caught_up = 0, False
    while not caught_up:
        answer = diff(client, topic, cursor)
        if not answer.is_ok:
            raise NoReplyError(f"diff of {topic} from {cursor}: {answer.status} {answer.body}")
        yield answer.body
        cursor, caught_up = int(answer.body["next_from_seq"]), answer.body["caught_up"]


def read_database(database: Database | ReadOnlyDatabase, topic: str, at: float) -> TopicReading:
    """The same of a database in this process."""
    reading = TopicReading(at=at)
    for page in database_pages(database, topic):
        reading.records += map(stored_record, page.records)
        reading.gaps += gaps_of(page)
        reading.head_seq, reading.earliest_seq = page.head_seq, page.earliest_seq
    return reading


def database_pages(database: Database | ReadOnlyDatabase, topic: str) -> Iterator[Diff]:
    cursor, caught_up = 0, False
    while not caught_up:
        page = database.diff(topic, cursor, limit=PAGE)
        yield page
        cursor, caught_up = page.next_from_seq, page.caught_up


def stored_record(record: Record) -> Stored:
    data = record.data
    return Stored(
        record.seq, data if isinstance(data, dict) else {"?": data}, record.tag, record.node
    )


def gaps_of(page: Diff) -> list[SeenGap]:
    lost = page.tombstone
    return [] if lost is None else [SeenGap(lost.gap_from, lost.gap_to, lost.reason)]


def stored_all(records: Iterable[Mapping[str, Any]]) -> list[Stored]:
    return [stored(each) for each in records]


def pushed(load: Load, path: str, silence_s: float) -> Generator[tuple[str, str]]:
    """Names and data of the events of a stream; none when the server refuses it."""
    connection = http.client.HTTPConnection("127.0.0.1", load.ports.http, silence_s)
    with closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        if response.status == 200:
            yield from events(load, response)


def events(load: Load, response: http.client.HTTPResponse) -> Iterator[tuple[str, str]]:
    """Names and data of events until the load or the stream ends."""
    name = ""
    data: list[str] = []
    while not load.stop.is_set():
        line = response.readline()
        if not line:
            return
        text = line.decode().rstrip("\r\n")
        if not text:
            if name:
                yield name, "\n".join(data)
            name, data = "", []
        elif text.startswith("event: "):
            name = text[7:]
        elif text.startswith("data: "):
            data.append(text[6:])
