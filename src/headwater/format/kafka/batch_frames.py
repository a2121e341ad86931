"""Record batches as frames: what every protocol but Kafka's own reads of a partition.

The server reads partitions so for HTTP, and Spark's tasks read them so from files: one module says
what becomes of a record.
"""

from __future__ import annotations

from headwater.format.appends import Appends, encode_appends
from headwater.format.kafka.batch import read_header
from headwater.format.kafka.mapping import to_native
from headwater.format.kafka.records import decode_records


class BatchFrames:
    """Records of a partition from an offset on, a list for each field of their frames."""

    def __init__(self, first_offset: int, limit: int) -> None:
        self._first_offset = first_offset
        self._limit = limit
        self._times: list[int] = []
        self._flags: list[int] = []
        self._nodes: list[bytes] = []
        self._tags: list[bytes] = []
        self._datas: list[bytes] = []

    def __len__(self) -> int:
        return len(self._times)

    @property
    def is_full(self) -> bool:
        return len(self._times) >= self._limit

    @property
    def next_offset(self) -> int:
        return self._first_offset + len(self._times)

    def add(self, batch: bytes | memoryview, base_offset: int | None = None) -> None:
        """The records of the next batch. A BatchError when they cannot be read: then none is in.

        `base_offset` is what the batch itself says, unless it is given.
        """
        base = read_header(batch).base_offset if base_offset is None else base_offset
        for record in decode_records(batch)[max(self.next_offset - base, 0) :]:
            if self.is_full:
                return
            fields = to_native(record.key, record.value, record.headers)
            self._times.append(max(record.timestamp_ms, 0))
            self._flags.append(fields.flags)
            self._nodes.append(fields.node)
            self._tags.append(fields.tag)
            self._datas.append(fields.joined)

    def frames(self) -> Appends:
        """In order; `$seq` is the offset plus one."""
        return encode_appends(
            0, self._first_offset + 1, self._times, self._flags, self._nodes, self._tags,
            self._datas,
        )  # fmt: skip
