"""Topic segments: one `.data` file of record frames and one `.idx` file of fixed entries each."""

from headwater.format.segment.entry import (
    ENTRY_BYTES,
    INDEX_DTYPE,
    INDEX_ENTRY,
    Entries,
    IndexFlag,
    bad_entries,
    decode_entries,
    index_flags,
    seal_checks,
)
from headwater.format.segment.frame import (
    SEGMENT_FRAME,
    SEGMENT_FRAME_BYTES_MIN,
    FrameState,
    SegmentRecord,
    decode_segment_frame,
    encode_segment_frame,
    segment_frame_size,
)
from headwater.format.segment.names import (
    SEQ_MAX,
    SegmentPart,
    deleted_directory_name,
    parse_deleted_directory_name,
    parse_segment_name,
    parse_topic_directory_name,
    segment_file_name,
    segment_name,
    topic_directory_name,
)
from headwater.format.segment.run import WalSlice, encode_run
from headwater.format.segment.verify import rebuild_entries, verify_frames

__all__ = [
    "ENTRY_BYTES",
    "INDEX_DTYPE",
    "INDEX_ENTRY",
    "SEGMENT_FRAME",
    "SEGMENT_FRAME_BYTES_MIN",
    "SEQ_MAX",
    "Entries",
    "FrameState",
    "IndexFlag",
    "SegmentPart",
    "SegmentRecord",
    "WalSlice",
    "bad_entries",
    "decode_entries",
    "decode_segment_frame",
    "deleted_directory_name",
    "encode_run",
    "encode_segment_frame",
    "index_flags",
    "parse_deleted_directory_name",
    "parse_segment_name",
    "parse_topic_directory_name",
    "rebuild_entries",
    "seal_checks",
    "segment_file_name",
    "segment_frame_size",
    "segment_name",
    "topic_directory_name",
    "verify_frames",
]
