"""Following a log that another process writes: what came since the last poll, without a lock.

Each shard is read on from where it was left. Whatever cannot be explained by writing alone (a file
that was trimmed away, a new number of shards, an owner that was started again) is a reason to read
everything again, and says so. Nothing is written.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import PurePath

from headwater.core.errors import FormatError, NewerFormatError, UnavailableError
from headwater.disk import Disk, File, OpenMode
from headwater.format.mark import MARK_BYTES, decode_mark
from headwater.format.names import parse_wal_file_name, wal_file_name
from headwater.recovery.directory import accessing, list_directory
from headwater.recovery.topics.replay import FrameGroup
from headwater.recovery.topics.scan import FileScan, scan_on
from headwater.recovery.topics.survey import ShardSurvey, find_shard_directories
from headwater.recovery.topics.table import FileVerdict

Position = tuple[str, int, int]
"""A shard's directory, the file and how far it was read."""


class LogChangedError(UnavailableError):
    """The log is not a continuation of what was read; read all of it again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_ms=0)


class LogFollower:
    """Begins where a survey ended. `shards` is what that survey found."""

    def __init__(self, disk: Disk, wal_directory: PurePath, shards: list[ShardSurvey]) -> None:
        self._disk = disk
        self._wal_directory = wal_directory
        self._followers = [_ShardFollower(disk, shard) for shard in shards if shard.files]
        self._directories = find_shard_directories(disk, wal_directory)
        known = {follower.directory for follower in self._followers}
        self._empty = [directory for directory in self._directories if directory not in known]

    @property
    def position(self) -> tuple[Position, ...]:
        return tuple(follower.position for follower in self._followers)

    def poll(self) -> list[FrameGroup]:
        """The groups that came since, topic by topic in their order. LogChangedError: survey again.

        After an error of any kind the follower has lost its position and is of no more use.
        """
        if find_shard_directories(self._disk, self._wal_directory) != self._directories:
            raise LogChangedError("the number of shards has changed")
        for directory in self._empty:
            if any(
                parse_wal_file_name(name) is not None
                for name in list_directory(self._disk, directory)
            ):
                raise LogChangedError(f"{directory} has begun to be written to")
        return [group for follower in self._followers for group in follower.advance()]


class _ShardFollower:
    def __init__(self, disk: Disk, survey: ShardSurvey) -> None:
        last = survey.files[-1]
        self._disk = disk
        self.directory = survey.directory
        # An end that was being written when it was scanned is no reason for doubt.
        trusted = not last.abandoned and (last.end > 0 or len(survey.files) > 1)
        self._chain = replace(survey.chain, trusted=trusted)
        self._number = last.number
        self._end = last.end
        self._abandoned = last.abandoned

    @property
    def position(self) -> Position:
        return str(self.directory), self._number, self._end

    def advance(self) -> list[FrameGroup]:
        groups: list[FrameGroup] = []
        run = self._chain.run
        while True:
            groups += self._rest_of_file()
            if self._chain.run != run:
                raise LogChangedError("the owner was started again")
            if not self._go_to_next_file():
                return groups

    def _go_to_next_file(self) -> bool:
        """A file bears the number of its first frame, so the next one can be named."""
        if self._abandoned:
            names = list_directory(self._disk, self.directory)
            if any((parse_wal_file_name(name) or 0) > self._number for name in names):
                raise LogChangedError("the log goes on behind a loss")
            return False
        following = self._chain.next_frame
        if following == self._number or not self._disk.exists(
            self.directory / wal_file_name(following)
        ):
            return False
        self._number, self._end = following, 0
        return True

    def _rest_of_file(self) -> list[FrameGroup]:
        path = self.directory / wal_file_name(self._number)
        with accessing(path):
            try:
                file = self._disk.open(path, OpenMode.READ)
            except FileNotFoundError as error:
                if self._disk.exists(self.directory / wal_file_name(self._chain.next_frame)):
                    return []  # read to its end before it was trimmed
                raise LogChangedError(f"{path} was trimmed away") from error
            with closing(file):
                self._refuse_another_log(file)
                if self._abandoned or not any(file.read(self._end, MARK_BYTES)):
                    return []
                return self._scan(path, file.view())

    def _refuse_another_log(self, file: File) -> None:
        head = file.read(0, MARK_BYTES)
        try:
            mark = decode_mark(memoryview(head), 0, len(head))
        except FormatError:
            return  # not written yet, or passed over by a repair
        if self._chain.log_id is not None and mark.log_id != self._chain.log_id:
            raise LogChangedError(f"{file.path} belongs to another log")

    def _scan(self, path: PurePath, buffer: memoryview) -> list[FrameGroup]:
        scan = FileScan(path, self._number)
        scan_on(buffer, scan, self._chain, self._end)
        if scan.verdict is FileVerdict.NEWER:
            raise NewerFormatError(scan.reason, path=path, offset=scan.end)
        self._end = scan.end
        spans = scan.spans
        groups = []
        for at in range(0, len(spans), 4):
            start, end, run, mark = spans[at : at + 4]
            groups.append(FrameGroup(path, self._number, buffer, start, end, run, mark + 1))
        return groups
