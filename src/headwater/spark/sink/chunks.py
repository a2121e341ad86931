"""Chunks: what is written at once, whole or not at all, and under one key.

Where a chunk ends depends on the rows alone, never on how they were handed over, so that another
attempt at the same rows cuts the same chunks. The first record of a chunk carries a mark: whose
chunk it is, how many records it has, and a digest of them that does not depend on their order.

A chunk is one write, so its records have seqs in a row: a scan for the marks of a writer jumps over
its own chunks and reads what lies between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core import limits
from headwater.core.errors import TopicNotFoundError, WriteUncertainError
from headwater.core.records import Record
from headwater.format.checksum import checksum64
from headwater.spark.sink.rows import MARK, raw_bytes

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.core.results import Tombstone

_DIGEST_BITS: Final = 2**64
_META_FIRST: Final = b'{"meta":{'


@dataclass(frozen=True, slots=True)
class Mark:
    """What the meta of a chunk's first record says; the topic too, for records may be copied."""

    topic: str
    writer: str
    batch: int
    partition: str
    number: int
    count: int
    digest: int

    def text(self) -> str:
        return "/".join(
            (
                self.topic,
                self.writer,
                str(self.batch),
                self.partition,
                str(self.number),
                str(self.count),
                f"{self.digest:016x}",
            )
        )

    @property
    def key(self) -> str:
        """The idempotency key: the same for every attempt at the chunk, whatever is in it."""
        return f"{self.writer}/{self.batch}/{self.partition}/{self.number}"

    def is_of(self, writer: str, batch: int, partition: str | None = None) -> bool:
        """Is it a chunk of this batch, or of this partition of it?"""
        same = self.writer == writer and self.batch == batch
        return same and partition in (None, self.partition)

    @staticmethod
    def read(text: str) -> Mark | None:
        """The mark a text stands for; None when it is none of ours."""
        try:
            topic, writer, batch, partition, number, count, digest = text.split("/")
            numbers = int(number), int(count), int(digest, 16)
            return Mark(topic, writer, int(batch), partition, *numbers)
        except ValueError:
            return None


@dataclass(frozen=True)
class SinkChunk:
    number: int
    parts: tuple[Any, ...]

    @cached_property
    def count(self) -> int:
        return sum(map(len, self.parts))

    @cached_property
    def digest(self) -> int:
        return digest_of(self.parts)

    def body(self, mark: Mark) -> msgspec.Raw:
        """The records as a JSON array, the first one with the mark."""
        first = bytes(raw_bytes(self.parts[0].slice(0, 1)))
        rest = [raw_bytes(self.parts[0].slice(1)), *map(raw_bytes, self.parts[1:])]
        joined = b"".join([b"[", with_mark(first, mark.text()), *rest])
        return msgspec.Raw(joined[:-1] + b"]")


def digest_of(parts: tuple[Any, ...]) -> int:
    """The same whatever the order of the rows is: a shuffle does not keep it."""
    total = 0
    for part in parts:
        total += sum(row_digests(part))
    return total % _DIGEST_BITS


def row_digests(texts: Any) -> Iterator[int]:
    return map(checksum64, texts.cast(pa.binary()).to_pylist())


def with_mark(row: bytes, text: str) -> bytes:
    mark = b'"%b":%b' % (MARK.encode(), msgspec.json.encode(text))
    if not row.startswith(_META_FIRST):
        return b'{"meta":{%b},%b' % (mark, row[1:])
    rest = row[len(_META_FIRST) :]
    return b"%b%b%b%b" % (_META_FIRST, mark, b"" if rest.startswith(b"}") else b",", rest)


def without_mark(meta: bytes | None) -> bytes | None:
    """Meta as it was before `with_mark`. Names in a mark need no escaping, see `options`."""
    opening = b'{"%b":' % MARK.encode()
    if meta is None or not meta.startswith(opening):
        return meta
    end = meta.index(b'"', len(opening) + 1) + 1
    rest = meta[end:]
    return None if rest == b"}" else b"{" + rest[1:]


class Chunker:
    """Collects rows and gives chunks as they become full."""

    def __init__(self, records_most: int, bytes_most: int) -> None:
        self._records_most = records_most
        self._bytes_most = bytes_most
        self._parts: list[Any] = []
        self._count = 0
        self._bytes = 0
        self._number = 0

    def add(self, texts: Any) -> Iterator[SinkChunk]:
        while len(texts):
            fitting = self._fitting(texts)
            if fitting:
                self._take(texts.slice(0, fitting))
                texts = texts.slice(fitting)
            if len(texts) or self._count == self._records_most:
                yield self._cut()  # by count at once, by bytes when the next row shows it

    def rest(self) -> Iterator[SinkChunk]:
        if self._count:
            yield self._cut()

    def _fitting(self, texts: Any) -> int:
        """How many of these rows still go into the chunk. The first row goes in, however large."""
        sizes = numpy.cumsum(pc.binary_length(texts).to_numpy(), dtype=numpy.int64)
        by_bytes = int(numpy.searchsorted(sizes, self._bytes_most - self._bytes, side="right"))
        if not self._count:
            by_bytes = max(by_bytes, 1)
        return min(by_bytes, self._records_most - self._count)

    def _take(self, texts: Any) -> None:
        self._parts.append(texts)
        self._count += len(texts)
        self._bytes += len(raw_bytes(texts))

    def _cut(self) -> SinkChunk:
        chunk = SinkChunk(self._number, tuple(self._parts))
        self._number += 1
        self._parts, self._count, self._bytes = [], 0, 0
        return chunk


_FEW: Final = 16
"""Records requested where a mark is expected."""


def find_marks(client: Client, topic: str, after: int, writer: str) -> Iterator[tuple[int, Mark]]:
    """A writer's chunks whose first record has a seq above `after`, with that seq, in order."""
    known, limit = after, _FEW
    while True:
        try:
            diff = client.diff(topic, known, limit=limit, max_batch_bytes=limits.READ_BYTES_CLAMP)
        except TopicNotFoundError:
            return
        if diff.tombstone is not None:
            raise _overtaken(topic, after, diff.tombstone)
        for record in diff.records:
            if record.seq <= known:
                continue  # inside a chunk that is known
            if record.seq != known + 1:
                raise _missing(topic, known + 1, record.seq - 1)
            known = record.seq
            mark = mark_of(record, topic)
            if mark is not None and mark.writer == writer:
                yield record.seq, mark
                known = record.seq + mark.count - 1
        if known < diff.next_from_seq:
            raise _missing(topic, known + 1, diff.next_from_seq)
        if known >= diff.head_seq:
            return
        limit = _FEW if known > diff.next_from_seq else limits.READ_RECORDS_CLAMP


def mark_of(record: Record, topic: str) -> Mark | None:
    """The mark of a record, if it was written as it stands and is no copy from another topic."""
    if record.meta_json is None or MARK.encode() not in record.meta_json:
        return None
    text = (record.meta or {}).get(MARK)
    mark = Mark.read(text) if isinstance(text, str) else None
    return mark if mark is not None and mark.topic == topic else None


def _missing(topic: str, first: int, last: int) -> WriteUncertainError:
    return WriteUncertainError(
        f"records {first} to {last} of {topic} were deleted after this write began, and an earlier "
        "attempt at it may have written them: nothing was written again. Go on with a new "
        "checkpoint or another write id, and start after this batch"
    )


def _overtaken(topic: str, after: int, lost: Tombstone) -> WriteUncertainError:
    return WriteUncertainError(
        f"records {lost.gap_from} to {lost.gap_to} of {topic} are gone ({lost.reason}), and an "
        f"earlier attempt at this write may have written some of them after {after}: nothing was "
        "written again. Give the topic a larger cap or age limit, and write the batch anew under "
        "another id if it must be there"
    )
