"""Many append frames at once: the columns of a batch in, its frames out.

The same bytes as `encode_frame` gives one by one (a test holds the two together), in one loop
without a call of ours per record.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from headwater.format.checksum import checksum64
from headwater.format.frame import FRAME, FRAME_LEN_MIN, FrameType

_LENGTH_BYTES: Final = FRAME.offset_of("type")
_HEAD_PACK: Final = FRAME.packer.pack
_CHECKSUM_PACK: Final = struct.Struct("<Q").pack
_APPEND: Final = int(FrameType.APPEND)


def encode_appends(
    topic_id: int,
    first_seq: int,
    ts: int,
    flags_base: int,
    flags: Sequence[int],
    nodes: Sequence[bytes],
    tags: Sequence[bytes],
    datas: Sequence[bytes],
) -> list[bytes]:
    """The frames of records `first_seq`, `first_seq + 1` and so on.

    `flags_base` (such as DURABLE) is added to the flags of each. All columns are equally long.
    """
    base = int(flags_base)  # the operators of an IntFlag are written in Python
    frames = []
    seq = first_seq
    for own, node, tag, data in zip(flags, nodes, tags, datas, strict=True):
        node_len, tag_len, data_len = len(node), len(tag), len(data)
        frame = (
            _HEAD_PACK(
                FRAME_LEN_MIN + node_len + tag_len + data_len,
                _APPEND, base | own, topic_id, seq, ts, node_len, tag_len, data_len,
            )
            + node + tag + data
        )  # fmt: skip
        frames.append(frame + _CHECKSUM_PACK(checksum64(frame[_LENGTH_BYTES:])))
        seq += 1
    return frames
