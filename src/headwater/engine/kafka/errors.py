"""Why Kafka's part of the engine refuses, beside the errors of `core`. `server.kafka.refusals` has
the codes that Kafka clients know; other protocols see the kind of request error that each is."""

from __future__ import annotations

from headwater.core.errors import DamageError, InvalidRequestError, UnavailableError
from headwater.model.kafka_group import Refusal


class OffsetRangeError(InvalidRequestError):
    """No such offset: it is beyond the end, or the start of the log moved past it."""


class TopicNameError(InvalidRequestError):
    """No Kafka topic can have this name."""


class TopicExistsError(InvalidRequestError):
    """There is a topic of this name, or one is just being made."""


class TopicPolicyError(InvalidRequestError):
    """This server does not allow it, whoever asks."""


class PartitionCountError(InvalidRequestError):
    """A topic cannot have this number of partitions."""


class ConfigError(InvalidRequestError):
    """A config that topics do not have, or not with this value."""


class ProducerEpochError(InvalidRequestError):
    """A later life of the same producer has written."""


class SequenceError(InvalidRequestError):
    """A producer's batch that is not its next one: one before it is missing."""


class GroupNameError(InvalidRequestError):
    """No consumer group can have this name."""


class GroupNotFoundError(InvalidRequestError):
    """No consumer group has this name."""


class GroupNotEmptyError(InvalidRequestError):
    """The group has members."""


class GroupSubscribedError(InvalidRequestError):
    """Members of the group read these topics."""


class MemberRefusedError(InvalidRequestError):
    """The rules of consumer groups refuse what a member asked for."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal


class RecordsRemovedError(UnavailableError):
    """Records went while they were searched; a new search goes without them."""


class DamagedBatchError(DamageError):
    """A fetch begins at records that cannot be read. Clients give up on this error, or raise it."""

    def __init__(self, first_offset: int, end_offset: int, where: DamageError) -> None:
        super().__init__(where.what, path=where.path, offset=where.offset, advice=where.advice)
        self.first_offset = first_offset
        self.end_offset = end_offset
        """The first offset behind them, as far as this read went."""
