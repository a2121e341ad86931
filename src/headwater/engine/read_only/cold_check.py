"""The frames of cold segments, for a check of a whole data directory.

A store that does not answer is no damage: it is reported once, and its segments stay unchecked.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from headwater.core.errors import RequestError, StorageError, UnavailableError
from headwater.disk import Disk
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import SegmentPart, segment_file_name, topic_directory_name
from headwater.store.cold_address import find_cold_tier, remembered_cold_tier
from headwater.store.object_store import shown_address
from headwater.store.segment_stores import ColdTier, SegmentStore
from headwater.store.verify import FaultKind, TopicSegmentCheck, VerifyFault, verify_cold_segment

UNKNOWN: Final = "its frames were not checked: name the cold tier with --cold"


class ColdCheck:
    """`location` is where the caller says the tier is; without it, what the directory remembers."""

    def __init__(self, disk: Disk, directory: PurePath, location: str | None) -> None:
        self._disk = disk
        self._location = location or remembered_cold_tier(disk, directory)
        self._tier: ColdTier | None = None
        self._away: VerifyFault | None = None
        self.unchecked: list[VerifyFault] = []
        """Why frames were not read: none of it is damage."""

    def source(self, path: PurePath, topic_id: int) -> ColdTopic:
        """How to read one topic, whose directory is `path`."""
        return ColdTopic(self, self._disk, path, topic_id)

    def store_of(self, topic_id: int) -> SegmentStore | None:
        """None while the tier is not known or does not answer; `unchecked` has the reason then."""
        if self._tier is None and self._location is not None and self._away is None:
            try:
                self._tier = find_cold_tier(self._disk, self._location)
            except (UnavailableError, StorageError, RequestError) as error:
                self.is_away(error)
        return None if self._tier is None else self._tier.topic(topic_id)

    def shown(self, topic_id: int) -> PurePath:
        shown = shown_address(self._location or "")
        return PurePath(shown, TOPICS_DIRECTORY, topic_directory_name(topic_id))

    def is_away(self, error: Exception) -> None:
        what = f"the cold tier cannot be read, cold segments stay unchecked: {error}"
        self._away = VerifyFault(PurePath(shown_address(self._location or "")), None, what, False)
        self._tier = None
        self.unchecked.append(self._away)

    def is_unknown(self, pointer: PurePath) -> None:
        if self._location is None:
            self.unchecked.append(VerifyFault(pointer, None, UNKNOWN, False, FaultKind.COLD))


class ColdTopic:
    """A `ColdSource` for one topic."""

    def __init__(self, check: ColdCheck, disk: Disk, path: PurePath, topic_id: int) -> None:
        self._check = check
        self._disk = disk
        self._path = path
        self._topic_id = topic_id

    def check(self, first_seq: int, pointer: PurePath) -> TopicSegmentCheck | None:
        store = self._check.store_of(self._topic_id)
        if store is None:
            self._check.is_unknown(pointer)
            return None
        location = self._check.shown(self._topic_id)
        try:
            return verify_cold_segment(self._disk, self._path, first_seq, store, location)
        except (UnavailableError, StorageError) as error:
            self._check.is_away(error)
            return None

    def stored(self) -> dict[int, PurePath]:
        store = self._check.store_of(self._topic_id)
        if store is None:
            return {}
        location = self._check.shown(self._topic_id)
        try:
            names = {each: segment_file_name(each, SegmentPart.DATA) for each in store.list()}
        except (UnavailableError, StorageError) as error:
            self._check.is_away(error)
            return {}
        return {first_seq: location / name for first_seq, name in names.items()}
