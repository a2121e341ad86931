"""Reading topics over HTTP: everything, a stretch behind a cursor, and server-sent events."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
    cursor = 0
    while True:
        answer = diff(client, topic, cursor)
        if not answer.is_ok:
            raise NoReplyError(f"diff of {topic} from {cursor}: {answer.status} {answer.body}")
        reading.records += map(stored, answer.body["records"])
        gap = gap_of(answer.body)
        if gap is not None:
            reading.gaps.append(gap)
        reading.head_seq = int(answer.body["head_seq"])
        reading.earliest_seq = int(answer.body["earliest_seq"])
        cursor = int(answer.body["next_from_seq"])
        if answer.body["caught_up"]:
            reading.at = time.monotonic()
            return reading


def stored_all(records: Iterable[Mapping[str, Any]]) -> list[Stored]:
    return [stored(each) for each in records]


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
