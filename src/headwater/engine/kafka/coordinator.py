"""The group coordinator: the pure rules of consumer groups with the clock and the log.

A group's offsets are in the log, and so are its members: after a restart a stable group goes on in
its generation, and each member has a whole session timeout to send its next heartbeat.
The coordinator logs a generation when its leader has assigned, before any member gets its
assignment; so it does for a static member that comes back under a new id. That is one event a
round and none a heartbeat. If the log refuses, the members get COORDINATOR_NOT_AVAILABLE and join
again, as with Kafka: a generation that is not in the log could not fence the one that is. An empty
group is logged too, but no answer waits for that.

Touched by the owner only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from headwater.core.clock import Clock
from headwater.core.errors import HeadwaterError
from headwater.engine.kafka.errors import (
    GroupNameError,
    GroupNotEmptyError,
    GroupNotFoundError,
    GroupSubscribedError,
    MemberRefusedError,
)
from headwater.engine.kafka.group_state import (
    Committed,
    empty_membership,
    group_from,
    membership_of,
)
from headwater.engine.kafka.store import KafkaStore
from headwater.engine.kafka.unavailable import UnavailableKafka
from headwater.engine.owner import Pending
from headwater.format.kafka.events import GroupMembership
from headwater.model.kafka_group import ConsumerGroup, JoinRequest, Outcome, Phase, Refusal, Refused
from headwater.model.kafka_group.group import DurableGroup, GroupStanding
from headwater.observe.logs import Logger
from headwater.wire.kafka.subscription import CONSUMER, subscribed_topics

_UNAVAILABLE = Refused(Refusal.COORDINATOR_NOT_AVAILABLE)
GROUPS_MAX: Final = 100_000
GROUP_NAME_BYTES_MAX: Final = 32_767

_log: Final = Logger("headwater.kafka")

Callback = Callable[[Outcome], None]
TopicPartition = tuple[str, int]


class MembershipLog:
    """Touched by the owner only."""

    def __init__(self, store: KafkaStore | UnavailableKafka, now_us: Callable[[], int]) -> None:
        self._store = store
        self._now_us = now_us
        self._log = Logger("headwater.kafka")
        self._refusing = False
        """The log refused the last time; the warning is not repeated."""

    def groups(self) -> list[DurableGroup]:
        """Those that were stable when the process before this one ended."""
        now_us = self._now_us()
        return [group_from(event, now_us) for event in self._store.memberships()]

    def deliver(self, group: DurableGroup) -> None:
        """Hand out the answers, after what has to be in the log first."""
        while True:
            if group.held is None:
                self._log_changes(group)
            answers, group.answers = group.answers, []
            if not answers:
                return
            if group.held is not None:
                group.held += answers
                continue
            for callback, outcome in answers:
                callback(outcome)

    def is_forgotten(self, group: DurableGroup) -> bool:
        """Whether it is logged that a group has no members. If not, it is logged once more."""
        if group.held is not None:
            return False
        if self._store.has_membership(group.org, group.name):
            self._log_empty(group)
            return False
        return True

    def _log_changes(self, group: DurableGroup) -> None:
        standing = group.standing
        if standing is not None and standing != group.logged:
            self._log_standing(group, standing)
        elif group.phase is Phase.EMPTY and group.logged is not None:
            group.logged = None
            self._log_empty(group)

    def _log_standing(self, group: DurableGroup, standing: GroupStanding) -> None:
        event = membership_of(group)
        if not self._store.fits_membership(event):
            self._warn_too_large(group)
            event = empty_membership(group)  # no earlier generation may come back instead
        group.logged, group.held = standing, []
        self._submit(event, lambda error: self._on_logged(group, error))

    def _on_logged(self, group: DurableGroup, error: HeadwaterError | None) -> None:
        answers = [*(group.held or ()), *group.answers]
        group.held = None
        self._note(error, group)
        if error is not None:
            answers = [(callback, _unless_refused(outcome)) for callback, outcome in answers]
            group.answers = []
            group.start_over(self._now_us())  # so this standing never comes again
            answers += group.answers
        group.answers = answers
        self.deliver(group)

    def _log_empty(self, group: DurableGroup) -> None:
        self._submit(empty_membership(group), lambda error: self._note(error, group))

    def _submit(
        self, event: GroupMembership, then: Callable[[HeadwaterError | None], None]
    ) -> None:
        try:
            pending: Pending[Any] = self._store.log_membership(event)
        except HeadwaterError as error:
            then(error)
            return
        pending.on_done = lambda done: then(done.error)

    def _note(self, error: HeadwaterError | None, group: DurableGroup) -> None:
        if error is not None and not self._refusing:
            self._log.warning(
                "members of a group are not in the log",
                organisation=group.org,
                group=group.name,
                reason=str(error),
            )
        self._refusing = error is not None

    def _warn_too_large(self, group: DurableGroup) -> None:
        if not group.too_large:
            self._log.warning(
                "a group has too much metadata to outlive a restart",
                organisation=group.org,
                group=group.name,
                members=len(group.members),
            )
        group.too_large = True


def _unless_refused(outcome: Outcome) -> Outcome:
    return outcome if isinstance(outcome, Refused) else _UNAVAILABLE


class GroupListing(NamedTuple):
    name: str
    phase: Phase
    protocol_type: str
    members: int


class Coordinator:
    def __init__(self, store: KafkaStore | UnavailableKafka, clock: Clock) -> None:
        self._store = store
        self._now_us = clock.monotonic_us
        self._membership_log = MembershipLog(store, self._now_us)
        self._groups = {(group.org, group.name): group for group in self._membership_log.groups()}
        """Groups that have members, or had some until just now."""
        self._resting: set[tuple[int, str]] = set()
        """Those that had none at the last tick already."""
        self._types: dict[tuple[int, str], str] = {}
        """Protocol types of groups that are only offsets now, for ListGroups."""

    # -- members

    def join(self, org: int, name: str, request: JoinRequest, callback: Callback) -> None:
        """`callback` is called once, now or when the others have joined."""
        group = self._groups.get((org, name))
        if group is None:
            refusal = self._refusal_of_new(name, request)
            if refusal is not None:
                callback(refusal)
                return
            group = self._groups[org, name] = DurableGroup(org, name)
        group.join(request, callback, self._now_us())
        self._membership_log.deliver(group)
        if group.is_idle and not self._is_known(org, name):
            del self._groups[org, name]

    def _refusal_of_new(self, name: str, request: JoinRequest) -> Refused | None:
        check_group_name(name)
        if request.member_id:
            return Refused(Refusal.UNKNOWN_MEMBER_ID, request.member_id)
        if len(self._groups) >= GROUPS_MAX:
            return Refused(Refusal.GROUP_MAX_SIZE_REACHED)
        return None

    def sync(
        self,
        org: int,
        name: str,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes],
        callback: Callback,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> None:
        group = self._groups.get((org, name))
        if group is None:
            callback(Refused(Refusal.UNKNOWN_MEMBER_ID, member_id))
            return
        group.sync(
            member_id,
            generation,
            assignments,
            callback,
            self._now_us(),
            instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
        )
        self._membership_log.deliver(group)

    def heartbeat(
        self, org: int, name: str, member_id: str, generation: int, instance_id: str | None
    ) -> Refusal | None:
        group = self._groups.get((org, name))
        if group is None:
            return Refusal.UNKNOWN_MEMBER_ID
        return group.heartbeat(member_id, generation, instance_id, self._now_us())

    def leave(self, org: int, name: str, member_id: str, instance_id: str | None) -> Refusal | None:
        group = self._groups.get((org, name))
        if group is None:
            return Refusal.UNKNOWN_MEMBER_ID
        refusal = group.leave(member_id, instance_id, self._now_us())
        self._membership_log.deliver(group)
        return refusal

    def tick(self, now_us: int) -> None:
        """Let time pass. The listener's timer calls this every so often."""
        for key, group in list(self._groups.items()):
            if not group.is_idle:
                self._expire(key, group, now_us)
                self._resting.discard(key)
            elif key in self._resting and self._membership_log.is_forgotten(group):
                # No member has come back. Its offsets are in the log, and nothing else is needed:
                # member ids are never used again, so no generation can be mistaken.
                self._resting.discard(key)
                del self._groups[key]
                self._keep_type(key, group.protocol_type)
            else:
                self._resting.add(key)

    def _keep_type(self, key: tuple[int, str], protocol_type: str) -> None:
        self._types.pop(key, None)
        if self._store.committed(*key):
            self._types[key] = protocol_type
            if len(self._types) > GROUPS_MAX:
                del self._types[next(iter(self._types))]

    def _expire(self, key: tuple[int, str], group: DurableGroup, now_us: int) -> None:
        """An exception in a group is a bug. The coordinator drops the group, so that its members
        join a new one, and time goes on for all the others."""
        try:
            group.expire(now_us)
            self._membership_log.deliver(group)
        except Exception as error:
            _log.error("a consumer group broke", group=key[1], error=repr(error), exc_info=error)
            del self._groups[key]
            group.phase = Phase.DEAD  # nothing more of it is logged
            for member in group.members.values():
                for callback in (member.joining, member.syncing):
                    if callback is not None:
                        callback(Refused(Refusal.COORDINATOR_NOT_AVAILABLE, member.member_id))

    # -- offsets

    def commit(
        self,
        org: int,
        name: str,
        member_id: str,
        generation: int,
        instance_id: str | None,
        offsets: Mapping[TopicPartition, Committed],
    ) -> Pending[bool]:
        """Store the offsets of a group, if this member may commit them."""
        check_group_name(name)
        group = self._groups.get((org, name))
        if group is not None:
            refusal = group.commit_refusal(member_id, generation, instance_id, self._now_us())
            if refusal is not None:
                raise MemberRefusedError(refusal)
        elif generation >= 0:
            # A group that has offsets is known, and has no such member.
            known = bool(self._store.committed(org, name))
            refusal = Refusal.UNKNOWN_MEMBER_ID if known else Refusal.ILLEGAL_GENERATION
            raise MemberRefusedError(refusal)
        return self._store.commit_offsets(org, name, offsets)

    def committed(self, org: int, name: str) -> Mapping[TopicPartition, Committed]:
        return self._store.committed(org, name)

    def forget_offsets(self, org: int, name: str, keys: list[TopicPartition]) -> Pending[bool]:
        """Refused where one is of a topic that members read: they may be just behind it."""
        read = self.topics_read(org, name)
        if read is None or any(topic in read for topic, _ in keys):
            raise GroupSubscribedError(f"group {name!r} reads these")
        return self._store.forget_offsets(org, name, keys)

    def topics_read(self, org: int, name: str) -> frozenset[str] | None:
        """The topics that members of a group subscribed to; None where it may be any.

        Raises where the group is not there, and where its members are no consumers.
        """
        group = self._require(org, name, empty=False)
        if group.phase is Phase.EMPTY:
            return frozenset()
        if group.protocol_type != CONSUMER:
            raise GroupNotEmptyError(f"group {name!r} has members")
        subscriptions = [
            subscribed_topics(metadata)
            for member in group.members.values()
            for _, metadata in member.protocols
        ]
        known = [topics for topics in subscriptions if topics is not None]
        return frozenset().union(*known) if len(known) == len(subscriptions) else None

    # -- groups as a whole

    def groups(self, org: int) -> Iterator[GroupListing]:
        seen = set()
        for (owner, name), group in self._groups.items():
            if owner == org:
                seen.add(name)
                yield GroupListing(name, group.phase, group.protocol_type, len(group.members))
        for name in self._store.groups_with_offsets(org):
            if name not in seen:
                yield GroupListing(name, Phase.EMPTY, self._types.get((org, name), ""), 0)

    def group(self, org: int, name: str) -> ConsumerGroup | None:
        """None: no such group. One that only has offsets is an empty one."""
        group: ConsumerGroup | None = self._groups.get((org, name))
        if group is None and self._store.committed(org, name):
            group = ConsumerGroup(name)
            group.protocol_type = self._types.get((org, name), "")
        return group

    def delete(self, org: int, name: str) -> Pending[bool]:
        group = self._require(org, name, empty=True)
        if self._groups.get((org, name)) is group:
            group.die()
            del self._groups[org, name]
        self._types.pop((org, name), None)
        return self._store.forget_group(org, name)

    @property
    def members(self) -> int:
        return sum(len(group.members) for group in self._groups.values())

    # -- inside

    def _require(self, org: int, name: str, *, empty: bool) -> ConsumerGroup:
        group = self.group(org, name)
        if group is None:
            raise GroupNotFoundError(f"there is no group {name!r}")
        if empty and group.phase is not Phase.EMPTY:
            raise GroupNotEmptyError(f"group {name!r} has members")
        return group

    def _is_known(self, org: int, name: str) -> bool:
        return bool(self._groups[org, name].generation or self._store.committed(org, name))


def check_group_name(name: str) -> None:
    if not name or len(name.encode()) > GROUP_NAME_BYTES_MAX:
        raise GroupNameError("a group needs a name")
