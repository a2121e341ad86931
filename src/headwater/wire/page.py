"""An answer as the sequencer plans it for a gateway: text as it is, and places of records in files.

The records of a page lie in segments, which do not change. So the sequencer decides which they are,
checks them, and says where they lie; the gateway prints them from its own map of the file. What is
not in a sealed segment yet comes as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntFlag
from typing import Final, NamedTuple

from headwater.core.arrays import numpy
from headwater.format.layout import Field, Layout
from headwater.wire.channel import ChannelError
from headwater.wire.frames import Offsets, Projection

RECORDS_MIN: Final = 64
"""To print fewer takes less time than to say where they lie."""


class PieceFlag(IntFlag):
    TAGS = 1
    """Print the tag of each record."""
    META = 2
    DATA = 4


PIECE: Final = Layout(
    "a piece of a PAGE",
    (
        Field("bytes", "u32", "of the text; of the path, where there are records"),
        Field("records", "u32", "0: a text"),
        Field("file_bytes", "u64", "length of the file: another length is another file"),
        Field("first_seq", "u64", "of the first record"),
        Field("flags", "u16", "what is printed of each, see `PieceFlag`"),
    ),
    tail=(("bytes", "text or path", ""), ("8 * records", "offsets", "i64 each, in the file")),
)


class LocatedFrames(NamedTuple):
    """Frames of a sealed segment that were checked, and what is to be printed of each."""

    path: str
    file_bytes: int
    first_seq: int
    offsets: Offsets
    projection: Projection


Piece = bytes | LocatedFrames


def page_payload(pieces: Sequence[Piece]) -> list[bytes]:
    """The payload of a PAGE, in parts."""
    pack = PIECE.packer.pack
    parts: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            parts += (pack(len(piece), 0, 0, 0, 0), piece)
            continue
        path = piece.path.encode("utf-8", "surrogateescape")
        count, flags = len(piece.offsets), _flags_of(piece.projection)
        fixed = pack(len(path), count, piece.file_bytes, piece.first_seq, flags)
        parts += (fixed, path, piece.offsets.tobytes())
    return parts


def read_page(payload: bytes) -> Iterator[Piece]:
    """Raises `ChannelError` where it cannot be one."""
    at, end, size = 0, len(payload), PIECE.size
    while at < end:
        if end - at < size:
            raise ChannelError("a page ends within a piece")
        length, count, file_bytes, first_seq, flags = PIECE.packer.unpack_from(payload, at)
        text_at = at + size
        offsets_at = text_at + length
        at = offsets_at + 8 * count
        if at > end:
            raise ChannelError("a piece of a page ends too late")
        text = payload[text_at:offsets_at]
        if not count:
            yield text
            continue
        yield LocatedFrames(
            text.decode("utf-8", "surrogateescape"),
            file_bytes,
            first_seq,
            numpy.frombuffer(payload[offsets_at:at], numpy.int64),
            _projection_of(flags),
        )


def _flags_of(projection: Projection) -> int:
    return (
        PieceFlag.TAGS * projection.tags
        | PieceFlag.META * projection.meta
        | PieceFlag.DATA * projection.data
    )


def _projection_of(flags: int) -> Projection:
    return Projection(
        tags=bool(flags & PieceFlag.TAGS),
        meta=bool(flags & PieceFlag.META),
        data=bool(flags & PieceFlag.DATA),
    )
