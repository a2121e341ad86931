"""`headwater.open(path, read_only=True)`: reads beside a running owner and changes nothing.

Takes no lock, makes no file and no directory. A read that finds nothing new has looked at the
files after it was called, so what an owner has acknowledged is seen by the next read. It may even
be seen a moment before the acknowledgement: a reader sees what is written, not what is synced.

When the owner removes or rewrites a file in the middle of a read, a new view is taken and the read
begins again. It gives rows of one moment or an error, never rows of two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final, TypeVar

from headwater.api.call_list import (
    ApiCall,
    ArrowCall,
    DiffCall,
    StateCall,
    TopicsCall,
    WatchCall,
    WatchingCall,
)
from headwater.api.face import ReadFace
from headwater.config.engine import EngineSettings
from headwater.core.clock import Clock, Doorbell
from headwater.core.driver import drive, follow
from headwater.core.errors import (
    ClosedError,
    ColdTierUnknownError,
    FormatError,
    HeadwaterError,
    RequestError,
    StorageError,
    TopicNotFoundError,
    UnavailableError,
)
from headwater.core.results import ArrowPage, Diff, TopicState
from headwater.core.units import US_PER_MS
from headwater.disk import Disk
from headwater.engine.operation import (
    Answered,
    InFiles,
    Operation,
    Step,
    WatchOperation,
    Woken,
)
from headwater.engine.read_only.view import DirectoryView, Progress
from headwater.engine.topics.arrow import arrow_page_operation
from headwater.engine.topics.operations import (
    DiffRequest,
    loaded_partition,
    read_operation,
    request_of,
    state_operation,
    topics_operation,
)
from headwater.engine.topics.watch import topic_watch, watch_operation
from headwater.recovery.directory import access_error, accessing
from headwater.store.pair import RecordDamage
from headwater.store.segment import SegmentChangedError

T = TypeVar("T")

VIEWS_MAX = 12
"""New views that are taken for one read before it gives up."""
PAUSE_MS_MAX = 200
_MAY_PASS = (UnavailableError, StorageError, FormatError, FileNotFoundError)


class ReadOnlyDatabase(ReadFace):
    """Another process's data directory, for reading. Safe to use from any number of threads."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        settings: EngineSettings,
        clock: Clock,
        progress: Progress,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._progress = progress
        self._lock = threading.RLock()
        self._waiting: set[Doorbell] = set()
        self._closed = False
        self._suspects: set[RecordDamage] = set()
        self._view: DirectoryView | None = None
        self._refreshed_us = 0
        self._last_fingerprint: object = None
        """How far the log reached at the last poll, as far as that is known."""
        with self._lock:
            self._stable(lambda view: view)

    def refresh(self) -> bool:
        """Poll the files now. False when the owner has written nothing since the last poll."""
        with self._lock:
            return self._refresh()

    @property
    def bad_frames(self) -> Sequence[RecordDamage]:
        """Damage that was met and left out of what was read."""
        with self._lock:
            return [] if self._view is None else list(self._view.core.damage.findings)

    def close(self) -> None:
        """Let go of the files; calls that wait in `diff` or `watch` end. May be called twice."""
        with self._lock:
            self._closed = True
            self._view = None
            for doorbell in self._waiting:
                doorbell.ring()

    # -- carrying calls out

    def _call(self, call: ApiCall[T]) -> T:
        """Reads look at the files again when they would otherwise find nothing, and when the view
        is older than the setting `refresh_interval_ms`."""
        answer: T = _CALLS[type(call)](self, call)
        return answer

    def _follow(self, call: WatchingCall[T]) -> Iterator[T]:
        return follow(_WATCHES[type(call)](self, call), _do)

    def _diff_of(self, call: DiffCall) -> Diff:
        return self._diff(call.topic, request_of(call))

    def _arrow_of(self, call: ArrowCall) -> ArrowPage:
        return self._on_view(lambda view: arrow_page_operation(view, call))

    def _state_of(self, call: StateCall) -> TopicState:
        return self._on_view(lambda view: state_operation(view, call.topic))

    def _topics_of(self, call: TopicsCall) -> list[TopicState]:
        return self._on_view(lambda view: topics_operation(view, call.prefix))

    def _watch_of(self, call: WatchCall) -> WatchOperation:
        def read(request: DiffRequest) -> Operation[Diff]:
            diff: Diff = yield InFiles(lambda: self._diff(call.topic, request))
            return diff

        def state() -> Operation[TopicState]:
            found: TopicState = yield InFiles(lambda: self.state(call.topic))
            return found

        watch = topic_watch(call.node, call.match, call.from_seq)
        return watch_operation(
            read, state, watch, None if call.tail else call.from_seq, call.idle_ms
        )

    def _on_view(self, operation: Callable[[DirectoryView], Operation[T]]) -> T:
        with self._lock:
            self._refresh()
            return self._stable(lambda view: drive(operation(view), _do))

    # -- reading

    def _diff(self, topic: str, request: DiffRequest) -> Diff:
        until_us = self._clock.monotonic_us() + request.wait_us
        with self._lock:
            age_us = self._clock.monotonic_us() - self._refreshed_us
            if age_us >= self._settings.refresh_interval_ms * US_PER_MS:
                self._refresh()
            diff = self._read(topic, request)
            if not _has_updates(diff) and self._refresh():
                diff = self._read(topic, request)
        while not _has_updates(diff) and self._clock.monotonic_us() < until_us:
            self._pause(until_us)
            with self._lock:
                if self._refresh():
                    diff = self._read(topic, request)
        return diff

    def _read(self, topic: str, request: DiffRequest) -> Diff:
        def read(view: DirectoryView) -> Diff:
            loaded = drive(loaded_partition(view, topic), _do)
            return drive(read_operation(view, loaded, request), _do)

        try:
            return self._stable(read)
        except TopicNotFoundError:
            if not self._refresh():
                raise
            return self._stable(read)

    def _pause(self, until_us: int) -> None:
        """Until the next poll, or until the database is closed."""
        doorbell = Doorbell()
        next_poll_us = self._clock.monotonic_us() + self._settings.refresh_interval_ms * US_PER_MS
        with self._lock:
            self._check_open()
            self._waiting.add(doorbell)
        try:
            self._clock.wait(doorbell, min(until_us, next_poll_us))
        finally:
            with self._lock:
                self._waiting.discard(doorbell)

    # -- views, with the lock held

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the database is closed")

    def _refresh(self) -> bool:
        self._check_open()
        before = None if self._view is None else self._view.fingerprint

        def follow(view: DirectoryView) -> bool:
            moved = view.follow()
            if moved:
                view.evict()
            return moved

        moved = self._stable(follow)
        self._refreshed_us = self._clock.monotonic_us()
        if self._view is not None and self._view.tail_bytes_followed > self._settings.cache_bytes:
            self._view = None  # what was followed is in segments by now; read it from there
            self._stable(lambda view: view)
        return moved or self._view is None or self._view.fingerprint != before

    def _stable(self, work: Callable[[DirectoryView], T]) -> T:
        """Do this on a view; on a new one when the files were changed underneath, some times."""
        seen: list[tuple[object, str]] = []
        failure: Exception | None = None
        for attempt in range(VIEWS_MAX):
            self._check_open()
            try:
                if self._view is None:
                    self._last_fingerprint = None
                    self._view = self._take_view()
                self._last_fingerprint = self._view.fingerprint
                return work(self._view)
            except ColdTierUnknownError:
                raise  # whatever the owner does: the caller opened it without the cold tier
            except _MAY_PASS as error:
                seen.append((self._last_fingerprint, str(error)))
                self._view = None
                failure = error
            if len(seen) > 2 and seen[-1] == seen[-2] == seen[-3]:
                break  # nothing changes: it is not the owner's doing
            if attempt:  # the first new view is mostly all it takes
                pause_us = min(1 << attempt, PAUSE_MS_MAX) * US_PER_MS
                self._clock.wait(Doorbell(), self._clock.monotonic_us() + pause_us)
        assert failure is not None
        raise self._verdict(failure, repeated=len(seen) > 1 and seen[-1] == seen[-2])

    def _verdict(self, failure: Exception, *, repeated: bool) -> Exception:
        if isinstance(failure, FileNotFoundError):
            failure = access_error(PurePath(failure.filename or self._directory), failure)
        if repeated and isinstance(failure, HeadwaterError):
            return failure
        error = UnavailableError(
            f"{self._directory} was changed by its owner during every read; "
            f"try again (last: {failure})"
        )
        error.__cause__ = failure
        return error

    def _take_view(self) -> DirectoryView:
        view = DirectoryView(
            self._disk,
            self._directory,
            self._settings,
            self._clock,
            self._judge,
            self._progress,
            self._note_fingerprint,
        )
        view.evict()
        self._refreshed_us = self._clock.monotonic_us()
        return view

    def _note_fingerprint(self, fingerprint: object) -> None:
        self._last_fingerprint = fingerprint

    def _judge(self, findings: Sequence[RecordDamage]) -> None:
        """A bad frame counts when a second view finds it too: the first may have been between an
        old index and a new file."""
        if not self._suspects.issuperset(findings):
            self._suspects.update(findings)
            raise SegmentChangedError(str(findings[0]))


def open_read_only(
    disk: Disk,
    directory: PurePath,
    settings: EngineSettings,
    clock: Clock,
    progress: Progress = lambda _: None,
) -> ReadOnlyDatabase:
    with accessing(directory):
        if not disk.is_directory(directory):
            raise RequestError(f"there is no directory {directory}; check the path")
    return ReadOnlyDatabase(disk, directory, settings, clock, progress)


def _has_updates(diff: Diff) -> bool:
    return bool(diff.records) or diff.tombstone is not None or not diff.caught_up


def _do(step: Step) -> Any:
    """At once: a reader waits for no other thread."""
    assert not isinstance(step, (Answered, Woken)), "reading waits for nothing"
    return step.work()


_CALLS: Final[dict[type, Callable[[ReadOnlyDatabase, Any], Any]]] = {
    DiffCall: ReadOnlyDatabase._diff_of,
    ArrowCall: ReadOnlyDatabase._arrow_of,
    StateCall: ReadOnlyDatabase._state_of,
    TopicsCall: ReadOnlyDatabase._topics_of,
}
_WATCHES: Final[dict[type, Callable[[ReadOnlyDatabase, Any], WatchOperation]]] = {
    WatchCall: ReadOnlyDatabase._watch_of,
}
