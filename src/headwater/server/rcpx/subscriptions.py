"""Subscriptions of one RCPX connection: WATCH_INSTANCE, WATCH_ALL, UNWATCH.

Events are pushed only while the client takes what was sent before. A client that is too slow gets a
message of type `gap` with the first and last offset of what it missed; WAL_READ has all of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from headwater.api.machine_requests import watch_filter
from headwater.engine.machines import operations as engine_operations
from headwater.engine.machines.log_reader import GapReason
from headwater.engine.machines.watchers import TransitionEvent, Watcher
from headwater.engine.operation import AsOwner, Operation
from headwater.server.access.keys import own_id
from headwater.server.access.quotas import over_limit
from headwater.server.machines.operations import own_event, seen_by
from headwater.server.machines.transition_follower import TransitionFollower
from headwater.server.rcpx.caller import RcpxCaller, Result
from headwater.wire import rcpx
from headwater.wire.machine_requests import (
    UnwatchParams,
    WatchAllParams,
    WatchInstanceParams,
    offset_of,
)
from headwater.wire.rcpx import RcpxFlag, message

if TYPE_CHECKING:
    from headwater.server.access.keys import ApiKey

PUSHED: Final = int(RcpxFlag.CRC | RcpxFlag.STREAM)
LAST: Final = int(RcpxFlag.CRC | RcpxFlag.STREAM | RcpxFlag.END)
PER_CONNECTION_MAX: Final = 100
_numbers = itertools.count(1)
_encode = msgspec.json.Encoder().encode


class RcpxSubscription:
    """One of them: where its transitions go."""

    def __init__(
        self, owner: RcpxSubscriptions, key: ApiKey, watcher: Watcher, *, with_ctx: bool
    ) -> None:
        self.name = f"sub-{next(_numbers)}"
        self._encoded_name = _encode(self.name)
        self._owner = owner
        self._connection = connection = owner.connection
        self._key = key
        self._with_ctx = with_ctx
        self.follower = TransitionFollower(connection.endpoint.feed, watcher, self)

    @property
    def key(self) -> ApiKey:
        return self._key

    @property
    def has_room(self) -> bool:
        return not self._connection.paused

    def send_events(self, events: Sequence[TransitionEvent]) -> None:
        connection = self._connection
        transition_cache, mode = connection.endpoint.feed.cache, connection.mode
        name, with_ctx = self._encoded_name, self._with_ctx
        messages = [
            message(rcpx.event(name, transition_cache.of(event, with_ctx=with_ctx)), mode, PUSHED)
            for event in (own_event(self._key, each) for each in events)
        ]
        connection.write(messages[0] if len(messages) == 1 else b"".join(messages))

    def send_missed(
        self, first_offset: int, last_offset: int, count: int | None, reason: GapReason
    ) -> None:
        body = {
            "type": "gap",
            "subscription_id": self.name,
            "first_offset": first_offset,
            "last_offset": last_offset,
            "missed": count,
            "reason": reason.value,
        }
        self._connection.send(_encode(body), PUSHED)

    def end(self) -> None:
        self._connection.send(_encode({"type": "end", "subscription_id": self.name}), LAST)
        self._owner.forget(self)


class RcpxSubscriptions:
    def __init__(self, connection: RcpxCaller) -> None:
        self.connection = connection
        self._quotas = connection.endpoint.access.quotas
        self._by_name: dict[str, RcpxSubscription] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def pump(self) -> None:
        for subscription in list(self._by_name.values()):
            subscription.follower.pump()

    def add(self, watcher: Watcher, *, with_ctx: bool) -> RcpxSubscription:
        key = self.connection.key
        assert key is not None
        try:
            if len(self._by_name) >= PER_CONNECTION_MAX:
                raise over_limit("subscriptions_per_connection", PER_CONNECTION_MAX)
            self._quotas.open_stream(key)
        except BaseException:
            watcher.close()
            raise
        subscription = RcpxSubscription(self, key, watcher, with_ctx=with_ctx)
        self._by_name[subscription.name] = subscription
        return subscription

    def remove(self, name: str) -> bool:
        subscription = self._by_name.get(name)
        if subscription is None:
            return False
        subscription.follower.close()
        self.forget(subscription)
        return True

    def forget(self, subscription: RcpxSubscription) -> None:
        if self._by_name.pop(subscription.name, None) is not None:
            self._quotas.close_stream(subscription.key)

    def end(self) -> None:
        """The server stops: say so."""
        for subscription in list(self._by_name.values()):
            subscription.follower.close()
            subscription.end()

    def close(self) -> None:
        """The client is gone."""
        for name in list(self._by_name):
            self.remove(name)


class RcpxSubscriber(RcpxCaller, Protocol):
    """A connection with the subscriptions that it has."""

    subscriptions: RcpxSubscriptions


def watch_instance(connection: RcpxSubscriber, params: WatchInstanceParams) -> Operation[Result]:
    engine, key = connection.endpoint.backend.engine, connection.key
    assert key is not None
    wanted = yield from seen_by(engine, key, watch_filter(params.instance_id))
    store = yield from engine_operations.open_store(engine)

    def begin() -> Result:
        assert wanted.instance_id is not None
        instance = store.get_instance(wanted.instance_id)
        watcher = store.watch(wanted, offset_of(params.from_offset))
        subscription = connection.subscriptions.add(
            watcher, with_ctx=params.include_ctx is not False
        )
        body = {
            "subscription_id": subscription.name,
            "instance_id": own_id(key, instance.id),
            "current_state": instance.state,
            "current_wal_offset": instance.last_wal_offset,
            "current_wal_offset_text": str(instance.last_wal_offset),
        }
        return Result(_encode(body), then=partial(_begin, connection, subscription))

    result: Result = yield AsOwner(begin)
    return result


def watch_all(connection: RcpxSubscriber, params: WatchAllParams) -> Operation[Result]:
    engine, key = connection.endpoint.backend.engine, connection.key
    assert key is not None
    requested = watch_filter(
        None, params.machines, params.events, params.from_states, params.to_states
    )
    wanted = yield from seen_by(engine, key, requested)
    store = yield from engine_operations.open_store(engine)

    def begin() -> Result:
        watcher = store.watch(wanted, offset_of(params.from_offset))
        subscription = connection.subscriptions.add(
            watcher, with_ctx=params.include_ctx is not False
        )
        offset = store.wal_stats().current_offset
        body = {
            "subscription_id": subscription.name,
            "wal_offset": offset,
            "wal_offset_text": str(offset),
        }
        return Result(_encode(body), offset, partial(_begin, connection, subscription))

    result: Result = yield AsOwner(begin)
    return result


def _begin(connection: RcpxSubscriber, subscription: RcpxSubscription) -> None:
    if connection.is_gone:  # it left while it was answered
        connection.subscriptions.remove(subscription.name)
    else:
        subscription.follower.begin()


def unwatch(connection: RcpxSubscriber, params: UnwatchParams) -> Result:
    removed = connection.subscriptions.remove(params.subscription_id)
    return Result(_encode({"subscription_id": params.subscription_id, "removed": removed}))
