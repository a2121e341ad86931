"""Followers that are pushed to: server-sent events and WebSockets, and publishing over the latter.

What a stream sends is a stretch like that of a diff: from where the reader stood to `to_seq`. Every
record in between is there, or a tombstone says that it is gone.
"""

from __future__ import annotations

import http.client
import json
import time
from contextlib import closing
from functools import partial
from random import Random
from typing import Any, Final

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from headwater.testing.torture.actor import AWAY_PAUSE_S, Load
from headwater.testing.torture.http_client import NoReplyError, NotSentError
from headwater.testing.torture.reading import pushed, stored_all
from headwater.testing.torture.topic_ledger import Followed, LedgerWrite, SeenGap
from headwater.testing.torture.topics import TAGS, TopicActor, WriteKind, body_of

KINDS: Final = (
    WriteKind("s-plain", writers=1),
    WriteKind("s-deleted", writers=1, has_deletes=True),
    WriteKind("s-capped", writers=1, cap_records=200),
)
SILENCE_S: Final = 5.0
"""Heartbeats come every second; the server may be stopped for one."""
ACK_S: Final = 30.0
FRAME_BYTES_MAX: Final = 2**24


class Streams(TopicActor):
    name = "streams"

    def __init__(self) -> None:
        super().__init__(KINDS)

    def begin(self, load: Load) -> None:
        super().begin(load)
        for kind in KINDS:
            for name, follow in (("sse", self._follow_events), ("ws", self._follow_socket)):
                work = partial(self._keep_following, load, kind, f"{kind.name}/{name}", follow)
                load.begin(f"streams/{kind.name}/{name}", work)
        load.begin("streams/publisher", partial(self._publish_all, load, KINDS[0]))

    def _keep_following(self, load: Load, kind: WriteKind, reader: str, follow: Any) -> None:
        while not load.stop.is_set():
            try:
                follow(load, kind, reader)
            except (OSError, http.client.HTTPException, WebSocketException, ValueError) as error:
                load.tally.add(f"streams ended by {type(error).__name__}")
            except (NotSentError, NoReplyError):
                load.stop.wait(AWAY_PAUSE_S)
            load.stop.wait(AWAY_PAUSE_S)

    # -- server-sent events

    def _follow_events(self, load: Load, kind: WriteKind, reader: str) -> None:
        cursor = self._cursors.get(reader, 0)
        body = {
            "topics": {kind.name: {"from_seq": cursor}},
            "heartbeat_ms": 1_000,
            "include_tags": True,
        }
        with load.client() as client:
            answer = client.post("/v0/watch", body)
        if not answer.is_ok:
            return
        with closing(pushed(load, f"/v0/watch/{answer.body['wid']}", SILENCE_S)) as stream:
            for name, data in stream:
                if name in ("record", "tombstone"):
                    self._note(load, kind, reader, name, json.loads(data))

    def _note(
        self, load: Load, kind: WriteKind, reader: str, name: str, said: dict[str, Any]
    ) -> None:
        cursor = self._cursors.get(reader, 0)
        gaps, records = [], []
        if name == "tombstone":
            gaps = [SeenGap(int(said["gap_from"]), int(said["gap_to"]), str(said["reason"]))]
            to_seq = int(said["gap_to"])
        else:
            records = stored_all(said["records"])
            to_seq = int(said["to_seq"])
        followed = Followed(cursor, max(to_seq, cursor), records, gaps, time.monotonic())
        self.ledgers[kind.name].follow(followed)
        self._cursors[reader] = max(to_seq, cursor)
        load.tally.add("records streamed", len(records))

    # -- WebSockets

    def _follow_socket(self, load: Load, kind: WriteKind, reader: str) -> None:
        with open_socket(load) as socket:
            cursor = self._cursors.get(reader, 0)
            say(socket, "subscribe", topic=kind.name, from_seq=cursor, include_tags=True)
            while not load.stop.is_set():
                try:
                    said = json.loads(socket.recv(timeout=0.2))
                except TimeoutError:
                    continue
                if said["op"] in ("record", "tombstone"):
                    self._note(load, kind, reader, said["op"], said)
                elif said["op"] == "error":
                    load.errors.append(f"{reader}: {said}")

    def _publish_all(self, load: Load, kind: WriteKind) -> None:
        random = load.random("streams", "publisher")
        while not load.stop.is_set():
            try:
                with open_socket(load) as socket:
                    while not load.stop.is_set():
                        self._publish(load, kind, socket, random)
                        load.stop.wait(random.uniform(0, 0.02))
            except (OSError, WebSocketException, ValueError):
                load.stop.wait(AWAY_PAUSE_S)

    def _publish(
        self, load: Load, kind: WriteKind, socket: ClientConnection, random: Random
    ) -> None:
        ledger = self.ledgers[kind.name]
        turn = next(self._turns)
        tags = tuple(random.choice((None, *TAGS)) for _ in range(random.choice((1, 1, 5))))
        write = LedgerWrite(
            f"{kind.name}.{turn}", tags, f"publisher/{load.round}", turn, time.monotonic()
        )
        ledger.send(write)
        try:
            say(socket, "publish", topic=kind.name, request_id=turn, **body_of(write, 20))
            while True:
                said = json.loads(socket.recv(timeout=ACK_S))
                if said.get("request_id") == turn:
                    break
        except BaseException:
            ledger.lose(write.identity, is_ordered=load.server_left.is_set())
            load.tally.add("writes unknown")
            raise
        if said["op"] == "ack":
            ledger.ack(
                write.identity, int(said["first_seq"]), int(said["last_seq"]), time.monotonic()
            )
            ledger.note_head(int(said["head_seq"]))
            load.tally.add("writes acked")
        elif said["code"] in ("internal", "storage_failed"):
            ledger.lose(write.identity)
        else:
            ledger.refuse(write.identity)


def open_socket(load: Load) -> ClientConnection:
    return connect(
        f"ws://127.0.0.1:{load.ports.http}/v0/ws", max_size=FRAME_BYTES_MAX, close_timeout=1.0
    )


def say(socket: ClientConnection, op: str, **fields: Any) -> None:
    socket.send(json.dumps({"op": op, **fields}))
