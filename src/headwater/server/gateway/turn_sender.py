"""The gateway's end of the way that plain writes take: a turn goes out as one frame of columns.

What the sequencer does not write together goes the way of all other requests, each by itself. So it
is only where it says that nothing of a group was written. A group whose answer never came is
answered as unknown: to send it again could write it twice (I2).

Keeps I2, I15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headwater.core.errors import HeadwaterError
from headwater.core.units import US_PER_MS
from headwater.observe.logs import Logger
from headwater.server.access.keys import KeyRing
from headwater.server.failures import unforeseen
from headwater.server.http.exchange import Exchange
from headwater.server.http.write_batcher import ExchangeGroup, WriteReplies
from headwater.wire.channel import ChannelError, ChannelKind
from headwater.wire.http_errors import HttpError, no_answer
from headwater.wire.turns import Failure, GroupIn, GroupOutcome, decode_reply, encode_turn

ALONE_US: Final = 200 * US_PER_MS
"""So long the writes to a topic go by themselves once the sequencer did not take them together."""
_ALONE_MAX: Final = 1_024


class FrameSender(Protocol):
    def send(self, kind: ChannelKind, stream: int, payload: bytes = b"") -> None: ...


class TurnSender:
    """Of one gateway. Where its turns of writes go; see `WriteSink`."""

    takes_pipelined = False
    """A group may come back to be asked one by one: nothing of its connections may be begun
    behind it."""

    def __init__(
        self,
        keys: KeyRing,
        ask: Callable[[Exchange], None],
        now_us: Callable[[], int],
        log: Logger,
    ) -> None:
        """`ask`: have the sequencer answer a request by itself."""
        self._keys = keys
        self._ask = ask
        self._now_us = now_us
        self._log = log
        self.replies = WriteReplies()
        self.channel: FrameSender | None = None
        """None while there is no sequencer."""
        self._sent: dict[int, ExchangeGroup] = {}
        """Groups without an answer, by number."""
        self._next_group = 1
        self._alone_until_us: dict[str, int] = {}

    # -- where writes go

    def takes(self, name: str) -> bool:
        if self.channel is None:
            return False
        until_us = self._alone_until_us.get(name)
        return until_us is None or until_us < self._now_us()

    def submit(self, groups: Sequence[ExchangeGroup]) -> None:
        channel = self.channel
        if channel is None:  # it went while these came
            self._ask_alone(groups)
            return
        rows: list[GroupIn] = []
        tags: list[bytes] = []
        datas: list[bytes] = []
        for group in groups:
            records = group.records
            key = self._keys.place_of(group.members[0].key)
            rows.append((key, group.name.encode(), group.requests, len(records)))
            tags += records.tags
            datas += records.datas
        first = self._next_group
        channel.send(ChannelKind.TURN, 0, encode_turn(first, rows, tags, datas))
        self._next_group += len(groups)
        self._sent.update(enumerate(groups, first))

    def take_unusual(self, group: ExchangeGroup, exchange: Exchange) -> None:
        self._ask(exchange)

    def write_alone(self, exchange: Exchange) -> None:
        self._ask(exchange)

    # -- what comes back

    def take_reply(self, payload: bytes) -> None:
        """Answer all requests that this frame is about. Raises `ChannelError`, or `FormatError`."""
        rows, failures = decode_reply(payload)
        alone: list[ExchangeGroup] = []
        for number, outcome, error, *told in rows:
            group = self._sent.pop(number, None)
            if group is None:
                raise ChannelError(f"there is no group {number} without an answer")
            try:
                if outcome == GroupOutcome.WRITTEN:
                    group.told(*told)
                elif outcome == GroupOutcome.FAILED:
                    group.failed(_error_of(failures[error]))
                else:
                    alone.append(group)
            except Exception as mistake:  # of one connection: the others have their answers
                self._note(mistake)
        try:
            self.replies.send()
        except Exception as mistake:  # they were sent one by one
            self._note(mistake)
        if alone:
            self._ask_alone(alone)

    def lost(self) -> None:
        """The sequencer is gone. Whether it wrote what it was sent is not known."""
        self.channel = None
        unanswered, self._sent = list(self._sent.values()), {}
        for group in unanswered:
            group.failed(no_answer())

    def _note(self, mistake: Exception) -> None:
        unforeseen(self._log, "answers to writes could not be sent as they should", mistake)

    def _ask_alone(self, groups: Sequence[ExchangeGroup]) -> None:
        if len(self._alone_until_us) >= _ALONE_MAX:
            self._alone_until_us.clear()
        until_us = self._now_us() + ALONE_US
        for group in groups:
            self._alone_until_us[group.name] = until_us
            group.alone()


def _error_of(failure: Failure) -> HeadwaterError:
    return HttpError(failure.code, failure.message, detail=failure.detail, headers=failure.headers)
