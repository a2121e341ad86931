"""The answers to single writes of one turn: printed and sent together, whatever their topics.

Where it is compiled, they are printed and handed to the kernel in one go, without the interpreter:
meanwhile the log's thread has it. A connection that has more to send than this, or seals what it
sends, gets its answer the usual way.

Keeps I15.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headwater.engine.topics.publisher import Write
from headwater.native import compiled
from headwater.server.http.endpoint import HttpEndpoint
from headwater.server.http.exchange import Exchange
from headwater.wire.answers import single_write_opening, single_write_reply
from headwater.wire.http_response import SHORT_HEAD

_native: Final = compiled("answers")

_opening_of: Final = lru_cache(maxsize=4_096)(single_write_opening)
"""How the answers of a topic begin."""

Reply = tuple[int, int, int, int, bytes, int, int, int]
"""A socket, the number of a request, its seq, when it came; then what the writes of its topic have
in common: how the answers begin, the head, how long the sync and the wait for pressure took."""


class WriteReplies:
    """Of the connections of one endpoint."""

    def __init__(self) -> None:
        self._exchanges: list[Exchange] = []
        self._replies: list[Reply] = []

    def add(self, exchanges: list[Exchange], write: Write) -> list[Exception]:
        """Answer requests whose single records are this write, one after the other. What cannot go
        straight to its socket is sent now, the rest in `send`. Gives the failures that are
        mistakes of ours: the requests behind such a one are answered all the same."""
        assert write.result is not None, "it is done"
        shared = (
            _opening_of(write.topic.name),
            write.result.head_seq,
            write.sync_us,
            write.throttle_us,
        )
        mistakes: list[Exception] = []
        for seq, exchange in enumerate(exchanges, write.first_seq):
            connection = exchange.connection
            try:
                if _native is not None and connection.takes_direct_answer:
                    descriptor = connection.reading.descriptor
                    self._replies.append(
                        (descriptor, exchange.number, seq, exchange.started_us, *shared)
                    )
                    self._exchanges.append(exchange)
                else:
                    reply = (0, exchange.number, seq, exchange.started_us, *shared)
                    exchange.answer_whole(_printed(reply, connection.endpoint))
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
            unsent = _native.send_single_writes(
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
    _, number, seq, started_us, opening, head_seq, sync_us, throttle_us = reply
    prefix, total_us = endpoint.request_prefix, endpoint.now_us() - started_us
    return single_write_reply(
        prefix, opening, number, seq, head_seq, total_us, sync_us, throttle_us
    )
