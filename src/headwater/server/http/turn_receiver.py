"""The sequencer's end of the way that plain writes take: the turns of all gateways are one turn.

What their frames bring in one turn of the loop is written together, each topic once. Groups are
answered when the log has answered, those of one gateway with one frame.

Keeps I2, I15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.core.errors import HeadwaterError
from headwater.engine.topics.record_encoding import EncodedRecords, plain_records
from headwater.observe.logs import Logger
from headwater.server.access.access import Access
from headwater.server.failures import logged, unforeseen
from headwater.server.http.turn_writer import TurnWriter, WriteGroup, call_all
from headwater.wire.channel import ChannelError
from headwater.wire.http_errors import error_headers
from headwater.wire.turns import Failure, GroupOutcome, Row, decode_turn, encode_reply

if TYPE_CHECKING:
    from headwater.engine.topics.publisher import Write
    from headwater.server.access.quotas import Usage


class TurnReceiver:
    """Of one sequencer, for all its gateways."""

    def __init__(self, writer: TurnWriter, access: Access, log: Logger) -> None:
        self._writer = writer
        self.log = log
        self._usages = [access.quotas.of(key) for key in access.keys.by_place()]
        self._came: list[WriteGroup] = []
        self._told: list[GatewayTurns] = []
        """Gateways that are owed a frame."""
        writer.senders.append(self._send_replies)

    def take(self, gateway: GatewayTurns, payload: bytes) -> None:
        """A turn of one gateway. Raises `ChannelError`, or `FormatError`."""
        first, groups = decode_turn(payload)
        if not self._came:
            self._writer.at_end_of_turn(self._submit)
        for number, (key, name, requests, tags, datas, size) in enumerate(groups, first):
            records = plain_records(datas, tags, size)
            usage = self._usage_of(key)
            self._came.append(GatewayGroup(name, usage, requests, records, number, gateway))

    def _usage_of(self, place: int) -> Usage:
        if place >= len(self._usages):
            raise ChannelError(f"there is no key {place}")
        return self._usages[place]

    def _submit(self) -> None:
        came, self._came = self._came, []
        self._writer.submit(came)

    def owe(self, gateway: GatewayTurns) -> None:
        self._told.append(gateway)

    def _send_replies(self) -> None:
        told, self._told = self._told, []
        call_all(gateway.send_rows for gateway in told)


class GatewayTurns:
    """What one gateway was told and is not sent yet."""

    def __init__(self, receiver: TurnReceiver, send: Callable[[bytes], None]) -> None:
        """`send`: a reply, as one frame; nothing once the gateway is gone."""
        self.receiver = receiver
        self._send = send
        self._rows: list[Row] = []
        self._failures: list[Failure] = []
        self._last_error: HeadwaterError | None = None

    def take(self, payload: bytes) -> None:
        self.receiver.take(self, payload)

    def tell(self, row: Row) -> None:
        if not self._rows:
            self.receiver.owe(self)
        self._rows.append(row)

    def tell_failed(self, number: int, error: HeadwaterError) -> None:
        if error is not self._last_error:
            self._last_error = error
            said = logged(self.receiver.log, "writes failed", error)
            detail = getattr(said, "detail", None)
            self._failures.append(Failure(said.code, str(said), detail, error_headers(said)))
        self.tell((number, GroupOutcome.FAILED, len(self._failures) - 1, 0, 0, 0, 0))

    def send_rows(self) -> None:
        rows, self._rows = self._rows, []
        failures, self._failures = self._failures, []
        self._last_error = None
        self._send(encode_reply(rows, failures))


class GatewayGroup(WriteGroup):
    """A group that connections of a gateway brought."""

    __slots__ = ("gateway", "number")

    def __init__(
        self,
        name: str,
        usage: Usage,
        requests: int,
        records: EncodedRecords,
        number: int,
        gateway: GatewayTurns,
    ) -> None:
        super().__init__(name, usage, requests, records)
        self.number = number
        self.gateway = gateway

    def written(self, write: Write, first_seq: int) -> None:
        assert write.result is not None, "it is done"
        head_seq = write.result.head_seq
        self.gateway.tell(
            (self.number, _WRITTEN, 0, first_seq, head_seq, write.sync_us, write.throttle_us)
        )

    def alone(self) -> None:
        self.gateway.tell((self.number, GroupOutcome.ALONE, 0, 0, 0, 0, 0))

    def failed(self, error: HeadwaterError) -> None:
        self.gateway.tell_failed(self.number, error)

    def broken(self, error: Exception) -> None:
        log = self.gateway.receiver.log
        failure = unforeseen(log, "writes failed", error, topic=self.name)
        self.gateway.tell_failed(self.number, failure)


_WRITTEN = int(GroupOutcome.WRITTEN)
