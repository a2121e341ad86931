"""What a partition is to every protocol and consumer: one log of records, numbered as they come.

Two stores have partitions, each in a format of its own: topics of the engine keep frames, Kafka's
shared log keeps record batches under a dense index. Callers do not distinguish them. They ask the
partition itself, and what only one kind can do is refused by the other.

`BatchPartition` is a partition for Kafka's protocol: offsets, which are seqs less one, and whole
batches. Plans are made by the owner; anyone may read them (I14).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from headwater.core.durability import Durability
from headwater.engine.pending import Pending
from headwater.format.kafka.batch import BatchHeader

Wakeup = Callable[[], None]
Batch = bytes | memoryview


# -- batches


class Produced(NamedTuple):
    """The answer to a produce."""

    base_offset: int
    append_time_ms: int
    """-1: the producer's timestamps stand."""
    log_start_offset: int


class Repeated(Produced):
    """The same for a batch that came again: nothing was stored."""

    __slots__ = ()


class BatchPlan(Protocol):
    """What a fetch will read."""

    high_watermark: int
    log_start_offset: int
    skips_damaged: bool
    """An empty batch stands for a damaged one: the consumer goes on behind it."""

    @property
    def needs_files(self) -> bool:
        """False when everything is in memory: reading does not block."""

    def read(self) -> list[Batch]:
        """Anywhere, once: whole batches with their offsets, at least one unless the offset is at
        the end. The first one may begin before the requested offset, as in Kafka."""


class OffsetLookup(Protocol):
    """A search for an offset that is about to be made."""

    def read(self) -> tuple[int, int] | None:
        """Anywhere, once: offset and time of the record, if there is one."""


class BatchPartition(Protocol):
    @property
    def topic(self) -> BatchTopic: ...

    @property
    def high_watermark(self) -> int:
        """The offset behind the newest record that readers may see."""

    @property
    def log_start_offset(self) -> int:
        """The offset of the oldest record that is left."""

    @property
    def bytes(self) -> int: ...

    @property
    def waiters(self) -> set[Wakeup]:
        """Called once each when there is something new, and then forgotten."""

    def append(
        self, batch: Batch, durability: Durability, header: BatchHeader | None = None
    ) -> Pending[Produced]:
        """The batch was checked by `check_batch`; its header need not be read again if given."""

    def refused(self, header: BatchHeader) -> None:
        """A batch was refused before it got here, and will come again: what its producer sent
        behind it waits."""

    def plan_fetch(self, offset: int, max_bytes: int) -> BatchPlan: ...

    def find_timestamp(self, timestamp_ms: int) -> OffsetLookup:
        """A search for the first record that is not older than this."""

    def find_newest(self) -> OffsetLookup:
        """A search for the record with the newest timestamp."""

    def delete_records(self, before_offset: int) -> Pending[int]:
        """Everything before this offset. Answers the log start."""


class BatchTopic(Protocol):
    """A name, partitions and configs, as Kafka clients see them."""

    @property
    def org(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def epoch(self) -> int:
        """Distinguishes topics of one name, where the log has no events for that."""

    @property
    def dropped(self) -> bool: ...

    @property
    def configs(self) -> Mapping[str, str]: ...

    @property
    def altered(self) -> Mapping[str, str] | None:
        """Configs that are on their way to the log: the next change begins with them."""

    @property
    def partitions(self) -> Sequence[BatchPartition]: ...

    def drop(self) -> Pending[bool]: ...

    def grow(self, partitions: int) -> Pending[bool]:
        """Have so many, which are more than before."""

    def alter(self, configs: Mapping[str, str]) -> Pending[bool]:
        """These are all its configs from now on; what is not named is at its default."""
