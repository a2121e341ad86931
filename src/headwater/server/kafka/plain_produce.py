"""The short way of a plain produce, from what was read to its answer.

Nothing is decided here that `produce` would decide otherwise: whatever has to be refused before
it reaches the log goes the long way, which answers with the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.core.errors import HeadwaterError
from headwater.server.kafka.api_handlers import handle
from headwater.server.kafka.endpoint import Call, Caller
from headwater.server.kafka.produce import DURABILITY, NO_ACK
from headwater.server.kafka.refusals import code_of, throttle_of
from headwater.wire.kafka.apis import ApiKey
from headwater.wire.kafka.plain import PlainProduce, plain_values, produced_frame

if TYPE_CHECKING:
    from headwater.engine.owner import Pending
    from headwater.engine.partition import BatchPartition, Produced
    from headwater.server.kafka.endpoint import KafkaEndpoint
    from headwater.server.kafka.users import Principal


class PlainCall(Call):
    __slots__ = ("_endpoint", "plain")

    def __init__(self, endpoint: KafkaEndpoint, connection: Caller, plain: PlainProduce) -> None:
        api, version, number = ApiKey.PRODUCE, plain.version, plain.correlation_id
        super().__init__(connection, api, version, number, "", plain_values(plain))
        self._endpoint = endpoint
        self.plain = plain

    def take(self, done: Pending[Produced]) -> None:
        """What came of it."""
        if done.error is not None:
            self.refuse_for(done.error)
        elif self.response is None:
            produced = done.answer()
            self._endpoint.count_stored(produced, self.plain.rows[0].header)
            try:
                self.response = (produced_frame(self.plain, *produced),)
            except Exception as error:  # a client must not wait for ever
                self._give_up(error)
            else:
                self.connection.answer_ready()

    def refuse_for(self, error: HeadwaterError) -> None:
        self.refuse(code_of(error), str(error), throttle_of(error))


def begin_plain(endpoint: KafkaEndpoint, call: PlainCall, writer: Principal | None) -> None:
    """Have it under way, or answered: on the short way if it is for one partition."""
    plain = call.plain
    partition, durability = _target(endpoint, writer, plain), DURABILITY.get(plain.acks)
    if partition is None or durability is None or plain.acks == NO_ACK:
        handle(endpoint, call)
        return
    endpoint.counters.requests[ApiKey.PRODUCE] += 1
    (row,) = plain.rows
    try:
        pending = endpoint.append(partition, row.batch, durability, row.header)
    except HeadwaterError as error:
        call.refuse_for(error)
    except Exception as error:
        endpoint.broken(call, error)
    else:
        if pending.done:
            call.take(pending)
        else:
            pending.on_done = call.take


def _target(
    endpoint: KafkaEndpoint, writer: Principal | None, plain: PlainProduce
) -> BatchPartition | None:
    """The one partition that is written to."""
    if writer is None or len(plain.rows) != 1:
        return None
    row = plain.rows[0]
    return endpoint.store.partition(writer.organisation, row.name, row.partition)
