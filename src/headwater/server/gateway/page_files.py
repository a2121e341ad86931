"""The files of sealed segments as a gateway has them: mapped, and printed from.

The sequencer has checked the records that it names, and a sealed file does not change. It may be
rewritten or removed before it is read here, and its successor may have its name; so a map belongs
to a name with a length, and the first record must be the one that is expected. Otherwise the answer
is planned again.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from headwater.core.errors import HeadwaterError
from headwater.core.units import US_PER_S
from headwater.disk import Disk, map_file
from headwater.format.segment import SEGMENT_FRAME
from headwater.wire.frames import render_frames
from headwater.wire.page import LocatedFrames

MAPS_MAX: Final = 256
UNUSED_US: Final = 10 * US_PER_S
"""A removed file takes its space until nobody has it mapped."""
_SEQ_AT: Final = SEGMENT_FRAME.offset_of("seq")
_SEQ_BYTES: Final = 8


class FileChangedError(HeadwaterError):
    """The records are not where they were when the answer was planned."""


class PageFiles:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._maps: dict[tuple[str, int], memoryview] = {}
        self._used_us: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return len(self._maps)

    def printed(self, frames: LocatedFrames, now_us: int) -> bytes:
        """These records as JSON objects with commas between. Raises `FileChangedError`."""
        view = self._view(frames, now_us)
        seq_at = int(frames.offsets[0]) + _SEQ_AT
        seq = int.from_bytes(view[seq_at : seq_at + _SEQ_BYTES], "little")
        if seq != frames.first_seq:
            raise FileChangedError(f"{frames.path} begins with {seq} there")
        return render_frames(view, frames.offsets, in_segment=True, projection=frames.projection)

    def _view(self, frames: LocatedFrames, now_us: int) -> memoryview:
        key = frames.path, frames.file_bytes
        view = self._maps.get(key)
        if view is None:
            try:
                view = map_file(self._disk, PurePath(frames.path))
            except OSError as error:
                raise FileChangedError(f"{frames.path} cannot be read") from error
            if len(view) < frames.file_bytes:
                raise FileChangedError(f"{frames.path} is another file now")
            if len(self._maps) >= MAPS_MAX:
                self._forget(min(self._used_us, key=self._used_us.__getitem__))
            self._maps[key] = view
        self._used_us[key] = now_us
        return view

    def forget_unused(self, now_us: int) -> None:
        for key in [key for key, us in self._used_us.items() if now_us - us >= UNUSED_US]:
            self._forget(key)

    def _forget(self, key: tuple[str, int]) -> None:
        del self._maps[key], self._used_us[key]
