"""The answers to the writes of one turn: printed and sent together, whatever their topics.

Where it is compiled, they are printed and handed to the kernel in one go, without the interpreter:
meanwhile the log's thread has it. A connection that has more to send than this, or seals what it
sends, gets its answer the usual way.

Keeps I15.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headwater.native import compiled
from headwater.server.http.endpoint import HttpEndpoint
from headwater.server.http.exchange import Exchange
from headwater.wire.answers import write_answer, write_opening, write_reply
from headwater.wire.http_response import SHORT_HEAD

_native: Final = compiled("answers")

_opening_of: Final = lru_cache(maxsize=4_096)(write_opening)
"""How the answers of a topic begin."""

Reply = tuple[int, int, int, int, int, bytes, int, int, int]
"""A socket, the number of a request, its first seq and how many it has, when it came; then what the
writes of its topic have in common: how the answers begin, the head, how long the sync and the wait
for pressure took."""
Told = tuple[str, int, int, int]
"""What is said of all writes of a group: the topic, its head, how long the sync and the wait for
pressure took."""
_SHORT_RECORDS_MAX: Final = 25
"""The answer to a write of so many records is too short to be packed, whatever its numbers."""


class WriteReplies:
    """Of the connections of one endpoint."""

    def __init__(self) -> None:
        self._exchanges: list[Exchange] = []
        self._replies: list[Reply] = []

    def add(
        self, exchanges: list[Exchange], counts: list[int], first_seq: int, told: Told
    ) -> list[Exception]:
        """Answer requests whose records, so many of each, have the seqs from the first one on. What
        cannot go straight to its socket is sent now, the rest in `send`. Gives the failures that
        are mistakes of ours: the requests behind such a one are answered all the same."""
        shared = (_opening_of(told[0]), *told[1:])
        mistakes: list[Exception] = []
        seq = first_seq
        for exchange, count in zip(exchanges, counts, strict=True):
            connection = exchange.connection
            own = (exchange.number, seq, count, exchange.started_us)
            seq += count
            try:
                if count > _SHORT_RECORDS_MAX and exchange.takes_gzip:
                    endpoint = connection.endpoint
                    exchange.answer_json(200, write_answer(*_told((0, *own, *shared), endpoint)))
                elif _native is not None and connection.takes_direct_answer:
                    self._replies.append((connection.reading.descriptor, *own, *shared))
                    self._exchanges.append(exchange)
                else:
                    exchange.answer_whole(_printed((0, *own, *shared), connection.endpoint))
            except Exception as mistake:
                mistakes.append(mistake)
        return mistakes

    def send(self) -> None:
        """Send what was added."""
        if not self._replies:
            return
        exchanges, self._exchanges = self._exchanges, []
        replies, self._replies = self._replies, []
        endpoint = exchanges[0].connection.endpoint
        now_us = endpoint.now_us()
        try:
            assert _native is not None, "no request was taken for direct"
            unsent = _native.send_write_replies(
                SHORT_HEAD, endpoint.request_prefix, replies, now_us
            )
        except Exception:  # before anything was sent: every request gets an answer (I15)
            for exchange, reply in zip(exchanges, replies, strict=True):
                exchange.answer_whole(_printed(reply, endpoint))
            raise
        for exchange in exchanges:
            exchange.connection.answered(now_us)
        for row, rest in unsent.items():
            exchanges[row].connection.send(rest)


def _printed(reply: Reply, endpoint: HttpEndpoint) -> bytes:
    opening, *told = _told(reply, endpoint)
    return write_reply(endpoint.request_prefix, opening, reply[1], *told)


def _told(reply: Reply, endpoint: HttpEndpoint) -> tuple[bytes, int, int, int, int, int, int]:
    """What the body says."""
    _, _, first_seq, count, started_us, opening, head_seq, sync_us, throttle_us = reply
    total_us = endpoint.now_us() - started_us
    return opening, first_seq, count, head_seq, total_us, sync_us, throttle_us
