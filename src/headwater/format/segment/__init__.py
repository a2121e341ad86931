"""Topic segments: one `.data` file of record frames and one `.idx` file of fixed entries each."""

from headwater.format.segment.entry import (
    ENTRY_BYTES,
    INDEX_ENTRY,
    MEMORY_FLAGS,
    Entries,
    IndexFlag,
    bad_entries,
    check_shifts,
    index_flags,
    pack_entries,
    seal_checks,
)
from headwater.format.segment.frame import (
    SEGMENT_FRAME,
    SEGMENT_FRAME_BYTES_MIN,
    FrameState,
    SegmentRecord,
    decode_segment_frame,
    segment_frame_size,
)
from headwater.format.segment.identity import (
    SEQ_MAX,
    Identity,
    SegmentFile,
    SegmentPart,
    checksum_span,
    deleted_directory_name,
    first_checksum,
    identity_of,
    identity_with_salt,
    parse_deleted_directory_name,
    parse_segment_file,
    parse_segment_name,
    parse_topic_directory_name,
    salt_of,
    segment_file_name,
    segment_name,
    seqs_of_shift,
    shared_shift,
    shift_of_seqs,
    topic_directory_name,
    topic_of_shift,
    unpack_identity,
)
from headwater.format.segment.run import SEGMENT_BYTES_MAX, WalSlice, compact_run, encode_run
from headwater.format.segment.verify import (
    FAULT_MEANING,
    FrameFault,
    frame_faults,
    rebuild_entries,
)
