"""The short way of a plain produce, from what was read to its answer.

Nothing is decided here that `producing` would decide otherwise: whatever has to be refused before
it reaches the log goes the long way, which answers with the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.core.errors import HeadwaterError
from headwater.server.kafka.call import Call
from headwater.server.kafka.failures import code_of, throttle_of
from headwater.server.kafka.produce import DURABILITY, NO_ACK
from headwater.wire.kafka.apis import ApiKey
from headwater.wire.kafka.plain import PlainProduce, plain_values, produced_frame

if TYPE_CHECKING:
    from headwater.engine.kafka.batch_appender import Produced
    from headwater.engine.kafka.partition import Partition
    from headwater.engine.pending import Pending
    from headwater.server.kafka.connection import KafkaConnection
    from headwater.server.kafka.endpoint import KafkaEndpoint


class PlainCall(Call):
    __slots__ = ("_plain",)

    def __init__(self, connection: KafkaConnection, plain: PlainProduce) -> None:
        api, version, number = ApiKey.PRODUCE, plain.version, plain.correlation_id
        super().__init__(connection, api, version, number, "", plain_values(plain))
        self._plain = plain

    def take(self, done: Pending[Produced]) -> None:
        """What came of it."""
        if done.error is not None:
            self.refuse_for(done.error)
        elif self.response is None:
            produced = done.answer()
            self.connection.endpoint.count_stored(produced, self._plain.rows[0].header)
            try:
                self.response = (produced_frame(self._plain, *produced),)
            except Exception as error:  # a client must not wait for ever
                self._give_up(error)
            else:
                self.connection.answer_ready()

    def refuse_for(self, error: HeadwaterError) -> None:
        self.refuse(code_of(error), str(error), throttle_of(error))


def begin_plain(endpoint: KafkaEndpoint, connection: KafkaConnection, plain: PlainProduce) -> None:
    """Have it under way, or answered: on the short way if it is for one partition."""
    call = PlainCall(connection, plain)
    connection.expect(call)
    partition, durability = _target(endpoint, connection, plain), DURABILITY.get(plain.acks)
    if partition is None or durability is None or plain.acks == NO_ACK:
        endpoint.handle(call)
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
    endpoint: KafkaEndpoint, connection: KafkaConnection, plain: PlainProduce
) -> Partition | None:
    """The one partition that is written to, if it is the Kafka store's own."""
    writer = connection.writer
    if writer is None or len(plain.rows) != 1:
        return None
    row = plain.rows[0]
    return endpoint.store.kafka_partition(writer.organisation, row.name, row.partition)
