"""What a partition is to every protocol and consumer: one log of records, numbered as they come.

Two stores have partitions, each in a format of its own: topics of the engine keep frames, Kafka's
shared log keeps record batches under a dense index. Callers do not distinguish them. They ask the
partition itself, and what only one kind can do is refused by the other.

`Partition` speaks of seqs and gives frames: HTTP, streams and operations read through it. A topic
of the engine is one, and so is a partition of Kafka's log. `BatchPartition` speaks of offsets,
which are seqs less one, and takes and gives whole batches: Kafka's protocol goes through it. A
partition of Kafka's log is one itself; `engine.kafka.native_topics` makes one of a log topic.

Everything is called as the owner unless it says anywhere: plans are read where a slow disk delays
only its reader (I14).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headwater.config.topic import TopicSettings
from headwater.core.arrays import NDArray, numpy
from headwater.core.durability import Durability
from headwater.core.results import TopicState
from headwater.engine.owner import Pending
from headwater.model.selection import Selection
from headwater.store.pair import RecordDamage

if TYPE_CHECKING:
    from headwater.format.kafka.batch import BatchHeader

Wakeup = Callable[[], None]
Batch = bytes | memoryview


# -- frames


class FilePlace(NamedTuple):
    """Where frames lie in a file that does not change."""

    path: PurePath
    file_bytes: int
    """Of a file of that name, only the one with this length is meant."""
    base: int
    """Where the buffer begins in it."""
    first_seq: int
    """Of the first frame."""


class FrameRun(NamedTuple):
    """Frames in one buffer, checked, in seq order."""

    buffer: bytes | memoryview
    offsets: NDArray[numpy.int64]
    in_segment: bool
    place: FilePlace | None = None
    """For frames of a sealed segment on this machine."""


class ReadPlan(Protocol):
    """What a read will give, and where its bytes are."""

    @property
    def selection(self) -> Selection:
        """Where it ends; for some plans known when they are read."""

    @property
    def head_seq(self) -> int: ...

    @property
    def earliest_seq(self) -> int: ...

    @property
    def waits_for_files(self) -> bool:
        """Whether a thread that may wait should read this."""

    @property
    def cold_segments(self) -> int:
        """How many of the segments it reads are in the cold tier."""

    def runs(self) -> tuple[list[FrameRun], list[RecordDamage]]:
        """Anywhere: the frames, and what was found damaged."""

    def note_damage(self, findings: Sequence[RecordDamage]) -> bool:
        """Whether to plan again: the damage may be known by then."""


class Partition(Protocol):
    def __hash__(self) -> int: ...

    @property
    def topic_id(self) -> int:
        """Different from every other, also from one made later under the same name."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str:
        """What identifies it among all that can be followed: its name is not enough for that
        where organisations have names of their own."""

    @property
    def epoch(self) -> int:
        """Of two that had this name, the later one has the larger."""

    @property
    def dropped(self) -> bool: ...

    @property
    def settings(self) -> TopicSettings: ...

    @property
    def visible_seq(self) -> int:
        """The last seq readers may see."""

    @property
    def earliest_seq(self) -> int:
        """The first live seq; visible_seq + 1 when there is none."""

    @property
    def last_read_ts(self) -> int: ...

    @property
    def is_announced(self) -> bool:
        """Its store calls `on_update` for everything new; otherwise only `waiters` are called."""

    @property
    def waiters(self) -> set[Wakeup]:
        """Called once each when there is something new, and then forgotten."""

    @property
    def loaded(self) -> bool:
        """False until its index is in memory."""

    def read_index(self) -> Callable[[], None]:
        """Anywhere: bring the index. Gives what the owner does then."""

    def touch(self, now_ms: int) -> None:
        """A client has read of it."""

    def plan(self, from_seq: int, limit: int, bytes_max: int) -> ReadPlan:
        """What a reader with this cursor gets next."""

    def state(self) -> TopicState: ...


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
