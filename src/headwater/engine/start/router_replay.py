"""Routers out of the files: which there are, how far each has come, what a crash took of theirs.

A router goes on where its newest durable mark says. What it copied after that is in no file:

- an at_least_once destination goes on above every seq that may have been seen, with nothing in
  between; the copies are made again under new seqs (I3);
- an exactly_once destination simply ends earlier; the same copies are made again under the same
  seqs before any client reads it, see `CopyRounds.catch_up`. Unless its source is of a class that
  forgets: then it continues above, too, and readers see a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from headwater.core.durability import Durability
from headwater.engine.routers.definitions import note_gaps_as_trims
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Router, Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.format.control_frames import (
    RouterCreated,
    RouterDeleted,
    RouterMark,
    RouterMeta,
    decode_body,
    decode_router_marks,
    decode_seq_ceilings,
)
from headwater.format.frame import Frame, FrameType
from headwater.model.loss import Loss
from headwater.model.router import CursorMark, RouterCursor, stored_router

_FORGETFUL: Final = (Durability.EPHEMERAL, Durability.MEMORY)


class RouterReplay:
    """Collects what snapshot and log say, in any order of the shards."""

    def __init__(self, core: EngineCore, topics: Topics) -> None:
        self._core = core
        self._topics = topics
        self._metas: dict[int, RouterMeta] = {}
        self._deleted: set[int] = set()
        self._marks: dict[int, RouterMark] = {}

    def from_snapshot(self, metas: Iterable[RouterMeta]) -> None:
        for meta in metas:
            self._metas[meta.router_id] = meta

    def note(self, frame: Frame) -> None:
        """First pass over the log."""
        _NOTES[frame.type](self, frame)

    def _created(self, frame: Frame) -> None:
        body = decode_body(frame, RouterCreated)
        if body.router_id not in self._metas:
            self._metas[body.router_id] = RouterMeta(
                body.router_id,
                body.name,
                body.source_id,
                frame.topic_id,
                body.settings,
                0,
                body.source_seq,
                0,
                0,
            )

    def _removed(self, frame: Frame) -> None:
        self._deleted.add(decode_body(frame, RouterDeleted).router_id)

    def _marked(self, frame: Frame) -> None:
        for mark in decode_router_marks(frame):
            known = self._marks.get(mark.router_id)
            if known is None or mark.number > known.number:
                self._marks[mark.router_id] = mark

    def _reserved(self, frame: Frame) -> None:
        ceilings = self._core.ceilings
        for topic_id, ceiling in decode_seq_ceilings(frame):
            if self._core.registry.by_id(topic_id) is not None:
                ceilings.restore(topic_id, max(ceiling, ceilings.ceiling_of(topic_id)))

    def attach(self) -> None:
        """After the first pass: the routers whose topics are there, with where each goes on."""
        by_name: dict[str, RouterMeta] = {}
        for router_id in sorted(self._metas):
            if router_id not in self._deleted:
                by_name[self._metas[router_id].name] = self._metas[router_id]
        for meta in by_name.values():
            source = self._core.registry.by_id(meta.source_id)
            dest = self._core.registry.by_id(meta.dest_id)
            if source is not None and dest is not None:
                self._core.routers.attach(self._router(meta, source, dest))
                note_gaps_as_trims(dest)

    def _router(self, meta: RouterMeta, source: Topic, dest: Topic) -> Router:
        settings = stored_router(meta.settings)
        mark = self._marks.get(meta.router_id)
        if mark is None or mark.number <= meta.number:
            mark = RouterMark(
                meta.router_id,
                meta.number,
                meta.source_seq,
                meta.dest_seq,
                meta.forwarded_total,
            )
        cursor = RouterCursor(settings.guarantee, CursorMark(mark.source_seq, mark.dest_seq))
        cursor.forwarded_total = mark.forwarded_total
        router = Router(meta.router_id, meta.name, settings, source, dest, cursor, mark.number)
        router.made, router.stopped = True, False
        return router

    def close_gaps(self, load: Callable[[Topic], bool]) -> None:
        """Once everything was read: seqs that may have been seen are not used for other records."""
        core = self._core
        for router in _sources_first(core.routers):
            dest, source = router.dest, router.source
            if dest.broken is not None or source.broken is not None:
                router.stopped = True  # until the files are restored
                continue
            # A source that is fed exactly once is not whole yet, and will be.
            comes_back = source.inbound is not None and source.inbound.is_exact
            went_back = not comes_back and router.cursor.source_seq > source.log.visible_seq
            # What such a source forgets, its seqs are used for other records.
            forgets = went_back or source.log.settings.durability in _FORGETFUL
            ceiling = core.ceilings.ceiling_of(dest.topic_id)
            above = ceiling > dest.log.visible_seq and dest.log.settings.durability.is_logged
            if above and (forgets or not router.exactly_once):
                if not dest.loaded and not load(dest):
                    router.stopped = True
                    continue
                if ceiling > dest.log.visible_seq:
                    self._topics.fill_dead(dest, ceiling, dest.last_ts, lost=forgets)
                    restore_floors(dest)
            if went_back:
                # A class that risks it lost records: what has their seqs now are other records.
                mark = CursorMark(source.log.visible_seq, dest.log.visible_seq)
                total = router.cursor.forwarded_total
                router.cursor = RouterCursor(router.settings.guarantee, mark)
                router.cursor.forwarded_total = total
                router.unmarked = True


def _sources_first(routers: Iterable[Router]) -> list[Router]:
    """Each behind the routers into its source; in a circle one has to be first."""
    ordered: dict[Router, None] = {}
    met: set[Router] = set()
    for router in routers:
        stack = [router]
        while stack:
            last = stack[-1]
            met.add(last)
            inbound = last.source.inbound
            before = (
                [] if inbound is None else [each for each in inbound.routers if each not in met]
            )
            if before:
                stack.append(before[0])
            else:
                ordered[stack.pop()] = None
    return list(ordered)


def restore_floors(dest: Topic) -> None:
    """Floors that were written down when the topic was longer than it came back (I10)."""
    stored = dest.stored
    dest.log.restore_floors(
        stored.evict_floor, stored.earliest_seq, Loss(stored.losses), stored.delete_below
    )


_NOTES: dict[FrameType, Callable[[RouterReplay, Frame], None]] = {
    FrameType.ROUTER_CREATE: RouterReplay._created,
    FrameType.ROUTER_DELETE: RouterReplay._removed,
    FrameType.ROUTER_MARK: RouterReplay._marked,
    FrameType.SEQ_CEILINGS: RouterReplay._reserved,
}
