"""The short way of a plain produce, from its frame to its answer.

Nothing is decided here that `producing` would decide otherwise: what is not plain, or is for nobody
here, goes the long way and is told there what is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.core.errors import HeadwaterError
from headwater.server.kafka.call import Call
from headwater.server.kafka.failures import code_of, throttle_of
from headwater.server.kafka.producing import DURABILITY, NO_ACK
from headwater.wire.kafka.apis import ApiKey
from headwater.wire.kafka.plain import PlainProduce, produced_frame, read_plain

if TYPE_CHECKING:
    from headwater.engine.kafka.producing import Produced
    from headwater.engine.pending import Pending
    from headwater.server.kafka.connection import KafkaConnection
    from headwater.server.kafka.door import KafkaDoor


class PlainCall(Call):
    __slots__ = ("_plain",)

    def __init__(self, connection: KafkaConnection, plain: PlainProduce) -> None:
        # What is asked for when it is refused.
        topic = {"name": plain.name, "partition_data": [{"index": plain.partition}]}
        values = {"acks": plain.acks, "topic_data": [topic]}
        api, version, number = ApiKey.PRODUCE, plain.version, plain.correlation_id
        super().__init__(connection, api, version, number, "", values)
        self._plain = plain

    def take(self, done: Pending[Produced]) -> None:
        """What came of it."""
        if done.error is not None:
            self.refuse_for(done.error)
        elif self.pieces is None:
            try:
                self.pieces = (produced_frame(self._plain, *done.answer()),)
            except Exception as error:  # whoever waits for it must not wait for ever
                self._give_up(error)
            else:
                self.connection.answer_ready()

    def refuse_for(self, error: HeadwaterError) -> None:
        self.refuse(code_of(error), str(error), throttle_of(error))


def begin_plain(door: KafkaDoor, connection: KafkaConnection, frame: memoryview) -> bool:
    """True when it was one, and is under way or answered."""
    writer = connection.writer
    plain = None if writer is None else read_plain(frame)
    if writer is None or plain is None or plain.acks == NO_ACK:
        return False
    durability = DURABILITY.get(plain.acks)
    partition = door.store.kafka_partition(writer.organisation, plain.name, plain.partition)
    if durability is None or partition is None:
        return False
    call = PlainCall(connection, plain)
    connection.expect(call)
    door.counters.requests[ApiKey.PRODUCE] += 1
    try:
        pending = door.append(partition, plain.batch, durability, plain.header)
    except HeadwaterError as error:
        call.refuse_for(error)
    except Exception as error:
        door.broken(call, error)
    else:
        if pending.done:
            call.take(pending)
        else:
            pending.on_done = call.take
    return True
