"""Routers, for the owner: defining, removing, listing them, and flushing what they copied.

A definition is a frame in the shard of the destination and takes effect when the log has it. It
begins at the head the source has at that moment: what was there before is not copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headwater.config.topic import topic_settings
from headwater.core.errors import RouterNotFoundError
from headwater.core.results import RouterState
from headwater.engine.owner import Change
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Router, RouterDefinition, Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.format.control_frames import (
    RouterCreated,
    RouterDeleted,
    encode_body,
    encode_seq_ceilings,
)
from headwater.format.frame import FrameType
from headwater.model.loss import Loss
from headwater.model.router import (
    CursorMark,
    Guarantee,
    RouterCursor,
    RouterSettings,
    check_router_name,
    may_become,
)


class Routers:
    def __init__(self, core: EngineCore, topics: Topics) -> None:
        self._core = core
        self._topics = topics

    def get(self, name: str) -> Router:
        router = self._core.routers.find(name)
        if router is None or not router.made:
            check_router_name(name)
            raise RouterNotFoundError(f"there is no router {name!r}", detail={"router": name})
        return router

    def state(self, router: Router) -> RouterState:
        cursor = router.cursor
        return RouterState(
            router=router.name,
            **router.settings.to_stored(),
            source_seq=cursor.source_seq,
            lag=router.lag,
            held=cursor.held,
            forwarded_total=cursor.forwarded_total,
        )

    def list(
        self,
        prefix: str = "",
        source: str | None = None,
        dest: str | None = None,
        after: str | None = None,
    ) -> Iterator[Router]:
        """By name."""
        for router in self._core.routers:
            if (
                router.made
                and router.name.startswith(prefix)
                and source in (None, router.settings.source)
                and dest in (None, router.settings.dest)
                and (after is None or router.name > after)
            ):
                yield router

    # -- defining

    def check(self, name: str, settings: RouterSettings) -> None:
        """Raises where `put` would refuse the definition, whatever topics there are."""
        graph = self._core.routers.graph
        known = graph.get(name)
        if known is not None and may_become(known, settings):
            graph.check_change(settings)
        elif graph.put(name, settings):
            graph.remove(name)

    def put(self, name: str, settings: RouterSettings) -> Change:
        """Define a router, or change what one does. Result: (state, created)."""
        core = self._core
        known = core.routers.find(name)
        if known is not None and known.made and may_become(known.settings, settings):
            core.routers.graph.check_change(settings)
            return self._redefine(known, settings)
        source = core.registry.get(settings.source)
        if not settings.create_dest:
            core.registry.get(settings.dest)
        if not core.routers.graph.put(name, settings):
            known = core.routers.find(name)
            assert known is not None, "what is in the graph is in the table"
            if known.definition is not None:
                return known.definition.follow()  # a crash could still take it
            change = Change(lambda: True)
            change.result = (self.state(known), False)
            return change
        dest: Topic | None = None
        try:
            dest = core.registry.find(settings.dest) or self._topics.make(
                settings.dest, topic_settings({}, topic=settings.dest)
            )
            if settings.guarantee is Guarantee.EXACTLY_ONCE:
                self._topics.check_dead_letters(dest.name, dest.log.settings, is_exact=True)
            return self._define(name, settings, source, dest)
        except BaseException:
            core.routers.graph.remove(name)
            if dest is not None:
                self._topics.forget_if_never_made(dest)
            raise

    def _define(self, name: str, settings: RouterSettings, source: Topic, dest: Topic) -> Change:
        core = self._core
        mark = CursorMark(source.log.visible_seq, dest.log.head_seq)
        cursor = RouterCursor(settings.guarantee, mark)
        router = Router(core.registry.take_id(), name, settings, source, dest, cursor)
        now = core.clock.wall_ms()
        body = RouterCreated(
            router.router_id, name, source.topic_id, mark.source_seq, settings.to_stored()
        )
        frames = [encode_body(FrameType.ROUTER_CREATE, dest.topic_id, now, body)]
        if dest.creation is not None:
            frames.insert(0, dest.creation)  # not known to be safe yet: this may be the first
        ceiling = reserve(core, dest, 1)
        if ceiling is not None:
            frames.append(encode_seq_ceilings([(dest.topic_id, ceiling)], now))

        def take_effect() -> tuple[RouterState, bool]:
            dest.in_flight -= 1
            dest.creation = router.definition = None
            core.changed = True
            if ceiling is not None:
                confirm(core, dest, ceiling)
            if source.dropped or dest.dropped:
                core.routers.detach(router)  # so is the router, then
            else:
                router.made, router.stopped = True, False
                note_gaps_as_trims(dest)
                core.route(source)
            return self.state(router), True

        def give_up() -> None:
            dest.in_flight -= 1
            if ceiling is not None:
                core.ceilings.take_back(dest.topic_id)
            core.routers.detach(router)
            self._topics.forget_if_never_made(dest)

        change = router.definition = RouterDefinition(take_effect, give_up)
        try:
            self._topics.submit(
                dest, b"".join(frames), change, frame_count=len(frames), essential=False
            )
        except BaseException:
            core.ceilings.take_back(dest.topic_id)
            raise
        dest.in_flight += 1
        core.routers.attach(router)
        return change

    def _redefine(self, old: Router, settings: RouterSettings) -> Change:
        """The same router with other rules, which count for what it has not copied yet. In the log
        it is another router of that name, and both frames are in one group with the copies before
        them."""
        core, source, dest = self._core, old.source, old.dest
        mark = CursorMark(old.cursor.source_seq, dest.log.head_seq)
        cursor = RouterCursor(settings.guarantee, mark)
        cursor.forwarded_total = old.cursor.forwarded_total
        new = Router(core.registry.take_id(), old.name, settings, source, dest, cursor)
        now = core.clock.wall_ms()
        body = RouterCreated(
            new.router_id, new.name, source.topic_id, mark.source_seq, settings.to_stored()
        )
        frames = [
            encode_body(FrameType.ROUTER_DELETE, dest.topic_id, now, RouterDeleted(old.router_id)),
            encode_body(FrameType.ROUTER_CREATE, dest.topic_id, now, body),
        ]
        was_stopped, old.stopped = old.stopped, True

        def take_effect() -> tuple[RouterState, bool]:
            core.changed = True
            if core.routers.find(old.name) is old and not (source.dropped or dest.dropped):
                core.routers.detach(old)
                core.routers.attach(new)
                new.made, new.stopped = True, False
                core.route(source)
            return self.state(new), False

        def give_up() -> None:
            old.stopped = was_stopped
            core.route(source)

        change = Change(take_effect, give_up)
        try:
            self._topics.submit(dest, b"".join(frames), change, frame_count=2, essential=False)
        except BaseException:
            give_up()
            raise
        return change

    # -- removing

    def delete(self, name: str) -> Change:
        """Remove a router. What it has copied stays. Result: False when there was none."""
        router = self._core.routers.find(name)
        if router is None:
            check_router_name(name)
            change = Change(lambda: True)
            change.result = False
            return change
        core, dest = self._core, router.dest
        was_stopped, router.stopped = router.stopped, True
        body, now = RouterDeleted(router.router_id), core.clock.wall_ms()
        frame = encode_body(FrameType.ROUTER_DELETE, dest.topic_id, now, body)

        def take_effect() -> bool:
            core.routers.detach(router)
            core.changed = True
            return True

        def give_up() -> None:
            router.stopped = was_stopped
            core.route(router.source)

        change = Change(take_effect, give_up)
        try:
            self._topics.submit(dest, frame, change)
        except BaseException:
            give_up()
            raise
        return change

    # -- flushing

    def flush_copies(self, dest: Topic) -> Change:
        """Have everything that was copied into a topic written to the log."""
        change = Change(lambda: True)
        if dest.dropped or dest.inbound is None or dest.inbound.unflushed_from is None:
            change.result = True
        else:
            self._topics.submit(dest, b"", change, frame_count=0)
        return change

    def halt(self, source: Topic) -> Sequence[Router]:
        """Copy nothing more from this topic. Gives the routers that were not halted before."""
        halted = [router for router in source.outbound if not router.stopped]
        for router in halted:
            router.stopped = True
        return halted

    def go_on(self, routers: Sequence[Router]) -> None:
        for router in routers:
            if self._core.routers.find(router.name) is router:
                router.stopped = False
                self._core.route(router.source)


def reserve(core: EngineCore, dest: Topic, count: int) -> int | None:
    """A ceiling to write ahead of so many more copies; None when there is room below the last.

    After a crash an at_least_once destination goes on above it."""
    if not dest.log.settings.durability.is_logged:
        return None
    first, ahead = dest.log.head_seq + 1, core.settings.wal.copies_ahead
    return core.ceilings.reserve(dest.topic_id, first, first + count - 1, ahead)


def confirm(core: EngineCore, dest: Topic, ceiling: int) -> None:
    core.ceilings.confirm(dest.topic_id, ceiling)
    dest.meta = None


def reservation(core: EngineCore, ceilings: Mapping[Topic, int]) -> Change:
    """Takes effect when ceilings of one shard are durable, or cannot be."""

    def take_effect() -> bool:
        for dest, ceiling in ceilings.items():
            confirm(core, dest, ceiling)
        return True

    def give_up() -> None:
        for dest in ceilings:
            core.ceilings.take_back(dest.topic_id)

    return Change(take_effect, give_up)


def note_gaps_as_trims(dest: Topic) -> None:
    """Slots without a record are what its source lost, from now on."""
    dest.log.lost_as = Loss.SOURCE_TRIM
