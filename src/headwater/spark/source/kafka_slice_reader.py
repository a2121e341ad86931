"""A task that reads partitions of Kafka topics from files.

It is sent where the batches were. First it reads from the log what became of the topics since: what
was deleted, or is before a log start that moved on, is reported as lost and never read. When a file
is gone or a batch is not what it was, it locates the rest of its seqs again, behind the last one it
has given out. So every seq is given once or reported as lost (I6, I8, I9).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from headwater.core.errors import StorageError
from headwater.format.kafka.batch import BatchError
from headwater.format.kafka.mapping import BatchFrames
from headwater.format.kafka.names import parse_partition_name
from headwater.model.loss import Loss
from headwater.recovery.kafka.topics import SeenTopics
from headwater.recovery.kafka.view import KafkaView, OwnedBatches, scan_topics
from headwater.spark.source.batch_assembler import LostSeqs
from headwater.spark.source.directory import MAY_PASS, Tries
from headwater.spark.source.kafka_batches import StoredBatch, between, stored_batches
from headwater.spark.source.kafka_snapshot import LOG_START, KafkaDirectory, KafkaSlice, epoch_of
from headwater.spark.source.location import ReadContext
from headwater.spark.source.remote_location import RECREATED
from headwater.wire.frame_rows import FrameRows, RecordColumns

DROPPED = "dropped"


def read_slices(
    directory: KafkaDirectory, slices: list[KafkaSlice], context: ReadContext
) -> Iterator[tuple[str, RecordColumns | LostSeqs]]:
    try:
        topics = scan_topics(directory.disk, directory.path)
    except MAY_PASS:  # files were changed just now, or a crash left something behind
        topics = directory.now(lambda view: view.topics)
    for each in slices:
        for rows in KafkaSliceReader(directory, each, context).read(topics):
            yield each.topic, rows


class KafkaSliceReader:
    """One slice, read to its end whatever its owner does meanwhile."""

    def __init__(self, directory: KafkaDirectory, wanted: KafkaSlice, context: ReadContext) -> None:
        self._directory = directory
        self._slice = wanted
        self._context = context
        self._batches = wanted.batches
        self._at = wanted.first_seq
        """The next seq to be dealt with."""
        self._tolerant = False

    def read(self, topics: SeenTopics) -> Iterator[RecordColumns | LostSeqs]:
        tries = Tries(self._directory)
        yield from self._lost(topics)
        while self._at <= self._slice.last_seq:
            try:
                yield from self._read_batches()
                return
            except MAY_PASS as error:
                self._failed(error, tries)
            yield from self._locate_again()

    def _lost(self, topics: SeenTopics) -> Iterator[LostSeqs]:
        """What went since the slice was planned."""
        at, last = self._at, self._slice.last_seq
        spot = parse_partition_name(self._slice.topic)
        assert spot is not None, "its name was understood when it was planned"
        topic = topics.find(self._directory.organisation, spot[0])
        if topic is None or epoch_of(topic) != self._slice.epoch:
            self._at = last + 1
            yield LostSeqs(at, last, DROPPED if topic is None else RECREATED, last - at + 1)
            return
        start = topic.partitions[spot[1]].log_start
        if start >= at:
            upto = min(start, last)
            self._at = upto + 1
            yield LostSeqs(at, upto, LOG_START, upto - at + 1)

    def _locate_again(self) -> Iterator[LostSeqs]:
        """Find where the rest of the seqs is by now."""
        topics, self._batches = self._directory.now(self._where_now)
        yield from self._lost(topics)

    def _where_now(self, view: KafkaView) -> tuple[SeenTopics, OwnedBatches]:
        partition = self._directory.find(view, self._slice.topic)
        if partition is None:
            return view.topics, self._batches
        return view.topics, between(view.batches(*partition), self._at, self._slice.last_seq)

    def _read_batches(self) -> Iterator[RecordColumns | LostSeqs]:
        wanted = between(self._batches, self._at, self._slice.last_seq)
        frames, size = self._frames(), 0
        directory = self._directory
        for stored in stored_batches(directory.disk, directory.path, wanted):
            bad: StorageError | None = None
            try:
                skipped = not self._take(stored, frames)
            except StorageError as error:
                bad, skipped = error, True
            size += len(stored.bytes)
            limits = self._context.batch_rows_max, self._context.batch_bytes_max
            if skipped or len(frames) >= limits[0] or size >= limits[1]:
                yield from self._given(frames)
                if bad is not None:
                    yield self._damage_gap(stored, bad)
                self._at = min(stored.last_seq, self._slice.last_seq) + 1
                frames, size = self._frames(), 0
        yield from self._given(frames)
        at, last = self._at, self._slice.last_seq
        if at <= last:  # the log ends before them: an older copy, or a crash took them
            self._at = last + 1
            yield LostSeqs(at, last, Loss.LOST_TAIL.word, last - at + 1)

    def _frames(self) -> BatchFrames:
        return BatchFrames(self._at - 1, max(self._slice.last_seq - self._at + 1, 0))

    def _given(self, frames: BatchFrames) -> Iterator[RecordColumns]:
        if len(frames):
            made = frames.frames()
            yield FrameRows.of_log(memoryview(made.buffer), numpy.array(made.offsets, numpy.int64))
            self._at = frames.next_offset + 1

    def _take(self, stored: StoredBatch, frames: BatchFrames) -> bool:
        """The records of a batch to the frames; False when no filter could pass one of them."""
        filters = self._context.filters
        if not filters.seq.meets(stored.first_seq, stored.last_seq):
            return False
        # The times in its header are the producer's word; the server has not checked them.
        _, batch = stored.sound(verify=self._context.verify)
        try:
            frames.add(batch, stored.first_seq - 1)
        except BatchError as error:
            raise stored.unreadable(error) from error
        return True

    def _damage_gap(self, stored: StoredBatch, error: StorageError) -> LostSeqs:
        if not self._tolerant:
            raise error
        first, last = max(stored.first_seq, self._at), min(stored.last_seq, self._slice.last_seq)
        return LostSeqs(first, last, f"damaged: {error}", last - first + 1)

    def _failed(self, error: Exception, tries: Tries) -> None:
        try:
            tries.failed(error, self._directory.position)
        except StorageError:
            if self._context.fail_on_data_loss or self._tolerant:
                raise
            self._tolerant = True  # it is there to stay: reported as a gap, and the rest is read
