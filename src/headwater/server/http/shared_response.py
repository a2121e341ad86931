"""The answers to writes that were one append: alike but for a few numbers, and sent together.

Where it is compiled, they are printed and handed to the kernel in one go, without the interpreter:
meanwhile the log's thread has it. A connection that has more to send than this, or seals what it
sends, gets its answer the usual way.

Keeps I15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.engine.topics.write import Write
from headwater.native import compiled
from headwater.wire.answers import single_write_opening, single_write_reply
from headwater.wire.http_response import SHORT_HEAD

if TYPE_CHECKING:
    from headwater.server.http.exchange import Exchange

_native: Final = compiled("answers")

Direct = tuple["Exchange", int]
"""A request whose answer can go to its socket, and the seq of its record."""


class SharedResponse(NamedTuple):
    """What all of them have in common."""

    prefix: bytes
    opening: bytes
    head_seq: int
    now_us: int
    sync_us: int
    throttle_us: int

    @classmethod
    def of(cls, write: Write, now_us: int, prefix: bytes) -> SharedResponse:
        head_seq = 0 if write.result is None else write.result.head_seq
        opening = single_write_opening(write.topic.name)
        return cls(prefix, opening, head_seq, now_us, write.sync_us, write.throttle_us)

    def reply(self, exchange: Exchange, seq: int) -> bytes:
        total_us = self.now_us - exchange.started_us
        return single_write_reply(
            self.prefix, self.opening, exchange.number, seq, self.head_seq, total_us, *self[4:]
        )


can_send_directly: Final = _native is not None


def send_directly(direct: list[Direct], response: SharedResponse) -> None:
    if not direct:
        return
    assert _native is not None, "no request was taken for direct"
    pending = [
        (exchange.connection.reading.descriptor, exchange.number, seq, exchange.started_us)
        for exchange, seq in direct
    ]
    try:
        unsent = _native.send_single_writes(
            SHORT_HEAD, response.prefix, response.opening, pending, *response[2:]
        )
    except Exception:  # before anything was sent: every request gets an answer (I15)
        for exchange, seq in direct:
            exchange.answer_whole(response.reply(exchange, seq))
        raise
    for exchange, _ in direct:
        exchange.connection.answered(response.now_us)
    for index, rest in unsent.items():
        direct[index][0].connection.send(rest)
