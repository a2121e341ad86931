"""Webhooks: every transition of a machine POSTed to an address, in order, at least once.

Each has a position in the machines' log that is on disk before the log moves on without it, so a
restart goes on where it was. What cannot be delivered is tried again, later and later; only its own
webhook waits for it. Nothing here makes the engine wait.

The server logs an error of the disk and tries again: a full disk costs no webhook its position,
only a few repeats if the server is killed meanwhile.

The log is kept for a webhook that is behind, so it gets everything however slow it is; but not for
ever: more than WEBHOOK_HELD_BYTES_MAX behind, the webhook gets a gap for what was compacted away.

The receiver recognizes a repeat by `headwater-delivery`, the transition's offset in the log, and
the sender by `headwater-signature`: HMAC-SHA256 of the timestamp, a dot and the body.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from headwater.api import machine_requests as requests
from headwater.config.server import ServerSettings
from headwater.core.clock import Clock
from headwater.core.errors import ClosedError, HeadwaterError, RequestError
from headwater.core.version import __version__
from headwater.disk import have_directory
from headwater.engine.machines import operations, positions
from headwater.engine.state.damage import Part
from headwater.engine.state.retention_holds import Hold, RetentionHolds
from headwater.format.machines.names import MACHINES_DIRECTORY, WEBHOOKS_DIRECTORY, global_offset
from headwater.model.machines import definition as machine_definition
from headwater.model.retention import HoldOwner
from headwater.server.machines.transition_follower import TransitionFeed, TransitionFollower

if TYPE_CHECKING:
    from headwater.client.http import Poster
    from headwater.engine.machines.log_reader import GapReason
    from headwater.engine.machines.positions import PositionFile
    from headwater.engine.machines.store import MachineStore
    from headwater.engine.machines.watchers import CatchUpPlan, TransitionEvent, Watcher

DELAY_S_MAX: Final = 300.0
TIMEOUT_S: Final = 10.0
GONE: Final = 410
"""A receiver's way of saying that it wants no more."""


class Webhook(msgspec.Struct, frozen=True):
    url: str
    machine: str | None
    """None for all of them."""

    @property
    def file_name(self) -> str:
        identity = f"{self.machine or ''}\n{self.url}".encode()
        return hashlib.sha256(identity).hexdigest()[:24] + ".json"

    @property
    def label(self) -> str:
        """For logs and metrics: an address may have secrets in its path."""
        return f"{self.machine or '*'}@{urlsplit(self.url).hostname}"


def parse_webhook(text: str) -> Webhook:
    """[machine=]URL; a mistake names the part."""
    machine, equals, url = text.partition("=")
    if not equals or "://" in machine:
        machine, url = "", text
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RequestError("a webhook is [machine=]http://... or [machine=]https://...")
    return Webhook(url, machine_definition.check_machine_name(machine) if machine else None)


def signature(secret: str, timestamp_ms: int, body: bytes) -> str:
    signed = b"%d.%b" % (timestamp_ms, body)
    return "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


class Notification(msgspec.Struct, frozen=True):
    """Something to deliver: where to go on behind it, and its JSON."""

    next_offset: int
    body: bytes


NextBatch = Callable[[], Awaitable[Sequence[Notification]]]


class WebhookDelivery:
    """One webhook at work."""

    def __init__(
        self,
        webhook: Webhook,
        settings: ServerSettings,
        feed: TransitionFeed,
        clock: Clock,
        file: PositionFile,
        store: MachineStore,
    ) -> None:
        """As the owner: the log is kept for it from here on, wherever it is."""
        self._settings = settings
        self._feed = feed
        self._clock = clock
        self._file = file
        self._store = store
        self.webhook = webhook
        self.delivered = 0
        self.failures = 0
        self.gaps = 0
        """Ranges of the log that it did not get."""
        self.last_gap: tuple[int, int, GapReason] | None = None
        self.position: int | None = None
        """Everything before this offset is delivered."""
        self.saved: int | None = None
        """The position as it is on disk."""
        self.source: TransitionSource | None = None
        self.is_gone = False
        """The receiver wants no more."""
        self._cannot_save = False
        self._hold = self._take_hold()

    # -- the position

    def _take_hold(self) -> Hold:
        """One of an earlier process was restored when the log was opened. A new webhook begins at
        the end of the log as it is now."""
        holds, name = self._store.holds, positions.webhook_hold_name(self.webhook.file_name)
        restored = holds.find(name)
        if restored is None:
            position: int | None = self._store.committed_offset
        else:
            position = self.saved = self._store.position_within(restored.position)
        hold = holds.take(
            name, HoldOwner.WEBHOOK, position, bytes_max=positions.WEBHOOK_HELD_BYTES_MAX
        )
        hold.label = self.webhook.label
        hold.save = self._catch_up_with_log
        self.position = position
        return hold

    def _catch_up_with_log(self) -> None:
        """A compaction begins. A webhook that waits for new events has everything before them."""
        self._feed.backend.engine.core.owner.call(self._pass_by_what_is_of_others)

    def _pass_by_what_is_of_others(self) -> None:
        if self.source is not None and self.source.is_waiting:
            self.position = self._store.committed_offset
            self.source.nudge()

    async def load(self) -> int:
        """Where it was; at first use, the end of the log as it was then."""
        if self.position is None:
            # The file is there and says nothing: everything there is, rather than nothing. The
            # receiver recognizes the repeats.
            self.position = global_offset(self._store.book.oldest_segment, 0)
        if self.saved is None:
            await self._write(self.position)
        return self.position

    async def save(self) -> None:
        """What cannot be saved now is saved with the next: until then the log is kept for it."""
        if self.position is None:
            return
        try:
            await self._write(self.position)
            self._cannot_save = False
        except (HeadwaterError, OSError) as error:
            if not self._cannot_save:
                self._cannot_save = True
                self._feed.log.warning(
                    "the position of a webhook cannot be saved",
                    webhook=self.webhook.label,
                    error=str(error),
                )

    async def _write(self, position: int) -> None:
        await self._feed.loop.run_in_executor(None, self._file.write, position)
        self.saved = position
        self._store.holds.move(self._hold, position)

    # -- delivering

    def note_gap(self, first_offset: int, last_offset: int, reason: GapReason) -> None:
        self.gaps += 1
        self.last_gap = (first_offset, last_offset, reason)
        self._feed.log.warning(
            "a webhook gets a gap: these transitions cannot be read any more",
            webhook=self.webhook.label,
            first_offset=first_offset,
            last_offset=last_offset,
            reason=reason.value,
        )

    async def run(self, next_batch: NextBatch, poster: Poster) -> None:
        """Until cancelled, or until the receiver says that it is gone."""
        while True:
            for notification in await next_batch():
                if not await self._deliver(notification, poster):
                    self._feed.log.warning("a webhook is gone", webhook=self.webhook.label)
                    self.is_gone = True
                    self._store.holds.release(self._hold, "its receiver wants no more (410)")
                    return
                self.position = notification.next_offset
                self.delivered += 1
            await self.save()

    async def _deliver(self, notification: Notification, poster: Poster) -> bool:
        """Try until it is taken. False when it will never be."""
        delay = self._settings.webhook_retry_ms / 1_000
        while True:
            status, why = await poster.post(
                self.webhook.url, notification.body, self._headers(notification)
            )
            if 200 <= status < 300:
                return True
            if status == GONE:
                return False
            self.failures += 1
            self._feed.log.warning(
                "a webhook was not taken; trying again",
                webhook=self.webhook.label,
                status=status,
                why=why,
                wal_offset=notification.next_offset - 1,
                again_in_s=round(delay, 3),
            )
            await asyncio.sleep(delay)
            delay = min(delay * 2, DELAY_S_MAX)

    def _headers(self, notification: Notification) -> dict[str, str]:
        now = self._clock.wall_ms()
        headers = {
            "content-type": "application/json",
            "user-agent": f"headwater/{__version__}",
            "headwater-delivery": str(notification.next_offset - 1),
            "headwater-timestamp": str(now),
        }
        secret = self._settings.webhook_secret
        if secret is not None:
            headers["headwater-signature"] = signature(secret, now, notification.body)
        return headers


class TransitionSource:
    """Transitions for one webhook, handed over when it has taken those before."""

    def __init__(
        self,
        feed: TransitionFeed,
        watcher: Watcher,
        read_again: Callable[[int], CatchUpPlan],
        note_gap: Callable[[int, int, GapReason], None],
    ) -> None:
        self._note_gap = note_gap
        self._transition_cache = feed.cache
        self._ready: list[Notification] = []
        self._waits = self._nudged = self._ended = False
        self._changed = asyncio.Event()
        self._follower = TransitionFollower(feed, watcher, self, read_again)
        self._follower.begin()

    async def next_batch(self) -> Sequence[Notification]:
        self._waits = True
        while not self._ready and not self._nudged:
            if self._ended:
                raise ClosedError("there is nothing more to be read of the machines' log")
            self._changed.clear()
            self._follower.pump()
            await self._changed.wait()
        self._waits = self._nudged = False
        ready, self._ready = self._ready, []
        return ready

    @property
    def is_waiting(self) -> bool:
        """Everything that was committed is delivered."""
        return self._waits and not self._ready and self._follower.is_up_to_date

    def nudge(self) -> None:
        """Have the position saved, though nothing is new."""
        self._nudged = True
        self._changed.set()

    @property
    def has_room(self) -> bool:
        return not self._ready

    def send_events(self, events: Sequence[TransitionEvent]) -> None:
        transition_cache = self._transition_cache
        self._ready += [
            Notification(
                event.wal_offset + 1,
                b'{"type":"transition",' + transition_cache.of(event, with_ctx=True)[1:],
            )
            for event in events
        ]
        self._changed.set()

    def send_missed(
        self, first_offset: int, last_offset: int, count: int | None, reason: GapReason
    ) -> None:
        """Compacted away before they were delivered, or damaged: the webhook gets that, too."""
        self._note_gap(first_offset, last_offset, reason)
        gap = {
            "type": "gap",
            "first_offset": str(first_offset),
            "last_offset": str(last_offset),
            "missed": count,
            "reason": reason.value,
        }
        self._ready.append(Notification(last_offset + 1, msgspec.json.encode(gap)))
        self._changed.set()

    def end(self) -> None:
        """The log cannot be read; or the machines are closed, and so is the server, which cancels
        the tasks that wait here."""
        self._ended = True
        self._changed.set()

    def close(self) -> None:
        self._follower.close()


class Webhooks:
    """All webhooks of a server."""

    def __init__(self, settings: ServerSettings, feed: TransitionFeed, clock: Clock) -> None:
        self._settings = settings
        self._feed = feed
        self._clock = clock
        self._hooks = [parse_webhook(text) for text in settings.webhooks]
        self.deliveries: list[WebhookDelivery] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._poster: Poster | None = None

    def __len__(self) -> int:
        return len(self._hooks)

    @property
    def is_running(self) -> bool:
        return bool(self._tasks)

    def begin(self) -> None:
        """The database is there; the machines are opened now if a webhook follows them."""
        core = self._feed.backend.engine.core
        self._release_others(core.holds)
        away = core.parts.error(Part.MACHINES) if self._hooks else None
        if away is not None:
            self._feed.log.error("webhooks are off: the machines are not served", error=str(away))
        elif self._hooks:
            # Late: most servers have no webhooks and need no client.
            from headwater.client.http import Poster

            self._poster = Poster(TIMEOUT_S)
            self._start(self._open, "*")

    def _release_others(self, holds: RetentionHolds) -> None:
        """Webhooks of an earlier start that are not configured any more."""
        names = {positions.webhook_hold_name(webhook.file_name) for webhook in self._hooks}
        for hold in holds.owned_by(HoldOwner.WEBHOOK):
            if hold.name not in names:
                holds.release(hold, "no such webhook is configured any more")

    def _start(self, work: Callable[[], Awaitable[None]], label: str) -> None:
        self._tasks.append(self._feed.loop.create_task(self._until_done(work, label)))

    async def _until_done(self, work: Callable[[], Awaitable[None]], label: str) -> None:
        """An error of the disk is logged and tried again: it may be gone the next time."""
        delay = self._settings.webhook_retry_ms / 1_000
        while True:
            try:
                await work()
                return
            except (HeadwaterError, OSError):
                self._feed.log.exception(
                    "a webhook stopped; trying again", webhook=label, again_in_s=round(delay, 3)
                )
            await asyncio.sleep(delay)
            delay = min(delay * 2, DELAY_S_MAX)

    async def _open(self) -> None:
        feed = self._feed
        engine = feed.backend.engine
        store = await feed.backend.ready_database.drive(operations.open_store(engine))
        disk, directory = engine.core.disk, engine.core.directory / MACHINES_DIRECTORY
        if not self.deliveries:
            self.deliveries = [
                WebhookDelivery(
                    webhook,
                    self._settings,
                    feed,
                    self._clock,
                    positions.webhook_file(disk, directory, webhook.file_name),
                    store,
                )
                for webhook in self._hooks
            ]
        await feed.loop.run_in_executor(None, have_directory, disk, directory / WEBHOOKS_DIRECTORY)
        for delivery in self.deliveries:
            webhook = delivery.webhook
            self._start(partial(self._run, delivery, store), webhook.label)

    async def _run(self, delivery: WebhookDelivery, store: MachineStore) -> None:
        assert self._poster is not None
        machine = delivery.webhook.machine
        wanted = requests.watch_filter(machines=None if machine is None else [machine])
        begin = await delivery.load()
        watcher = store.watch(wanted, begin, held=False)  # the webhook's own hold keeps the log
        source = TransitionSource(
            self._feed, watcher, partial(store.catch_up, wanted), delivery.note_gap
        )
        delivery.source = source
        try:
            await delivery.run(source.next_batch, self._poster)
        finally:
            delivery.source = None
            source.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for delivery in self.deliveries:
            await delivery.save()
        if self._poster is not None:
            await self._poster.close()
