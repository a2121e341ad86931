"""A consumer group: its members, its generation, and the requests that wait.

Pure: times are given, ids are given. A caller that has to wait passes a token, and finds it with
its outcome in `answers` when a later call, of any member, has decided.

Kept at all times (`tests.rig.invariants.check_group`):

- no members: empty or dead, or still preparing because a member id was given out;
- no member waits for a join unless the group prepares, none for a sync unless it completes;
- the leader is a member, an instance id belongs to one member;
- a generation never comes back.

A `DurableGroup` outlives the process, as far as its members could notice the difference. What has
to last is a generation that has its assignment, and the holders of instance ids in it: no member
acts on any of it before the log has it. A round that is under way need not last. Until it ends no
member has an assignment of the new generation, so the old one may come back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from headwater.model.kafka_group.member import (
    Joined,
    JoinRequest,
    Member,
    MemberInfo,
    Outcome,
    Phase,
    Refusal,
    Refused,
    SyncedMember,
    chosen_protocol,
    common_protocols,
)

SESSION_TIMEOUT_US_MIN: Final = 1_000_000
SESSION_TIMEOUT_US_MAX: Final = 1_800_000_000
REBALANCE_TIMEOUT_US_MAX: Final = 86_400_000_000
MEMBERS_MAX: Final = 1_000


class ConsumerGroup:
    def __init__(self, name: str) -> None:
        self.name = name
        self.phase = Phase.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name = ""
        self.leader = ""
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """Instance id -> member id."""
        self.promised: dict[str, int] = {}
        """Ids that were given out, and until when a member may join with them."""
        self.deadline_us = 0
        """Of the round, while preparing or completing."""
        self.answers: list[tuple[Any, Outcome]] = []

    # -- joining

    def join(self, request: JoinRequest, token: Any, now_us: int) -> None:
        """Answered when every member has joined; at once when it is refused or nothing changes."""
        refusal = self._join_refusal(request)
        if refusal is not None:
            self._answer(token, Refused(refusal, request.member_id))
        elif not request.member_id:
            self._join_new(request, token, now_us)
        elif self.promised.pop(request.member_id, None) is not None:
            self._add(request, request.member_id, token, now_us)
        else:
            self._join_again(request, token, now_us)

    def _join_refusal(self, request: JoinRequest) -> Refusal | None:
        if self.phase is Phase.DEAD:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        if not SESSION_TIMEOUT_US_MIN <= request.session_timeout_us <= SESSION_TIMEOUT_US_MAX:
            return Refusal.INVALID_SESSION_TIMEOUT
        if not request.protocol_type or not request.protocols:
            return Refusal.INCONSISTENT_GROUP_PROTOCOL
        member_id = request.member_id
        # Only a member without instance id is given one: none may come with both.
        if member_id and (member_id not in self.promised or request.instance_id is not None):
            refusal = self._identity_refusal(member_id, request.instance_id)
            if refusal is not None:
                return refusal
        others = [each for each in self.members.values() if not self._is_same(each, request)]
        if others:
            names = {name for name, _ in request.protocols}
            if request.protocol_type != self.protocol_type or names.isdisjoint(
                common_protocols(others)
            ):
                return Refusal.INCONSISTENT_GROUP_PROTOCOL
        return None

    @staticmethod
    def _is_same(member: Member, request: JoinRequest) -> bool:
        if request.member_id:
            return member.member_id == request.member_id
        return request.instance_id is not None and member.instance_id == request.instance_id

    def _join_new(self, request: JoinRequest, token: Any, now_us: int) -> None:
        instance = request.instance_id
        if instance is not None and instance in self.instances:
            self._replace(request, token, now_us)
        elif len(self.members) + len(self.promised) >= MEMBERS_MAX:
            self._answer(token, Refused(Refusal.GROUP_MAX_SIZE_REACHED))
        elif instance is None and request.knows_handshake:
            self.promised[request.fresh_id] = now_us + request.session_timeout_us
            self._answer(token, Refused(Refusal.MEMBER_ID_REQUIRED, request.fresh_id))
        else:
            self._add(request, request.fresh_id, token, now_us)

    def _add(self, request: JoinRequest, member_id: str, token: Any, now_us: int) -> None:
        member = Member.of(request, member_id, now_us)
        if not self.members:
            self.protocol_type = request.protocol_type
            self.leader = member_id
        self.members[member_id] = member
        if request.instance_id is not None:
            self.instances[request.instance_id] = member_id
        member.joining = token
        self._rebalance(now_us)

    def _replace(self, request: JoinRequest, token: Any, now_us: int) -> None:
        """A static member came back without its id: it replaces itself under a new one."""
        assert request.instance_id is not None
        member = self.members.pop(self.instances[request.instance_id])
        old_id, leads = member.member_id, member.member_id == self.leader
        for waiting in (member.joining, member.syncing):
            if waiting is not None:
                self._answer(waiting, Refused(Refusal.FENCED_INSTANCE_ID, old_id))
        member.joining = member.syncing = None
        member.member_id = self.instances[request.instance_id] = request.fresh_id
        self.members[request.fresh_id] = member
        if leads:
            self.leader = request.fresh_id
        member.update(request)
        member.renew_session(now_us)
        same = chosen_protocol(list(self.members.values())) == self.protocol_name
        if self.phase is Phase.STABLE and same:
            joined = self._joined(member)
            if leads and not request.knows_skipping:
                # With another leader in the answer, it does not assign again.
                self._answer(token, joined._replace(leader=old_id, members=()))
            else:
                self._answer(token, joined._replace(skip_assignment=leads))
        else:
            member.joining = token
            self._rebalance(now_us)

    def _join_again(self, request: JoinRequest, token: Any, now_us: int) -> None:
        member = self.members[request.member_id]
        changed = member.protocols != request.protocols
        member.renew_session(now_us)
        is_current = self.phase is Phase.COMPLETING_REBALANCE or (
            # A leader that joins again requests a new round: only it knows why.
            self.phase is Phase.STABLE and member.member_id != self.leader
        )
        if is_current and not changed:
            self._answer(token, self._joined(member))
            return
        member.update(request)
        if member.joining is not None:
            self._answer(member.joining, Refused(Refusal.REBALANCE_IN_PROGRESS, member.member_id))
        member.joining = token
        self._rebalance(now_us)

    # -- the round

    def _rebalance(self, now_us: int) -> None:
        """Have all members join again, unless that is under way; end the round if all have."""
        if self.phase is not Phase.PREPARING_REBALANCE:
            for member in self.members.values():
                if member.syncing is not None:
                    again = Refused(Refusal.REBALANCE_IN_PROGRESS, member.member_id)
                    self._answer(member.syncing, again)
                    member.syncing = None
                member.assignment = b""
            self.phase = Phase.PREPARING_REBALANCE
            self.deadline_us = now_us + self._round_us()
        self._maybe_complete(now_us)

    def _round_us(self) -> int:
        timeouts = (member.rebalance_timeout_us for member in self.members.values())
        return min(max(timeouts, default=0), REBALANCE_TIMEOUT_US_MAX)

    def _maybe_complete(self, now_us: int) -> None:
        waited_for = [each for each in self.members.values() if each.joining is None]
        if self.phase is Phase.PREPARING_REBALANCE and not self.promised and not waited_for:
            self._complete(now_us)

    def _complete(self, now_us: int) -> None:
        """A new generation of those who are here."""
        self.generation += 1
        if not self.members:
            self.phase = Phase.EMPTY
            self.protocol_name = self.leader = ""
            return
        if self.members[self.leader].joining is None:
            self.leader = next(
                id_ for id_, each in self.members.items() if each.joining is not None
            )
        self.protocol_name = chosen_protocol(list(self.members.values()))
        self.phase = Phase.COMPLETING_REBALANCE
        self.deadline_us = now_us + self._round_us()
        for member in self.members.values():
            if member.joining is not None:
                self._answer(member.joining, self._joined(member))
                member.joining = None
                member.renew_session(now_us)

    def _joined(self, member: Member) -> Joined:
        members: tuple[MemberInfo, ...] = ()
        if member.member_id == self.leader:
            members = tuple(
                MemberInfo(each.member_id, each.instance_id, each.metadata(self.protocol_name))
                for each in self.members.values()
            )
        return Joined(
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader,
            member.member_id,
            members,
        )

    # -- syncing

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes],
        token: Any,
        now_us: int,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> None:
        """Answered when the leader has sent the assignment."""
        refusal = self._member_refusal(member_id, generation, instance_id)
        if refusal is None and (
            (protocol_type is not None and protocol_type != self.protocol_type)
            or (protocol_name is not None and protocol_name != self.protocol_name)
        ):
            refusal = Refusal.INCONSISTENT_GROUP_PROTOCOL
        if refusal is None and self.phase is Phase.PREPARING_REBALANCE:
            refusal = Refusal.REBALANCE_IN_PROGRESS
        if refusal is not None:
            self._answer(token, Refused(refusal, member_id))
            return
        member = self.members[member_id]
        member.renew_session(now_us)
        if self.phase is Phase.STABLE:
            self._answer(token, self._synced(member))
            return
        if member.syncing is not None:
            self._answer(member.syncing, Refused(Refusal.REBALANCE_IN_PROGRESS, member_id))
        member.syncing = token
        if member_id == self.leader:
            self._assign(assignments, now_us)

    def _assign(self, assignments: Mapping[str, bytes], now_us: int) -> None:
        self.phase = Phase.STABLE
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.syncing is not None:
                self._answer(member.syncing, self._synced(member))
                member.syncing = None
                member.renew_session(now_us)

    def _synced(self, member: Member) -> SyncedMember:
        return SyncedMember(self.protocol_type, self.protocol_name, member.assignment)

    # -- being there, and going

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None, now_us: int
    ) -> Refusal | None:
        refusal = self._member_refusal(member_id, generation, instance_id)
        if refusal is not None:
            return refusal
        self.members[member_id].renew_session(now_us)
        if self.phase is Phase.PREPARING_REBALANCE:
            return Refusal.REBALANCE_IN_PROGRESS
        return None

    def leave(self, member_id: str, instance_id: str | None, now_us: int) -> Refusal | None:
        """A static member may be removed by its instance id alone."""
        if self.phase is Phase.DEAD:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        if instance_id is None and self.promised.pop(member_id, None) is not None:
            self._maybe_complete(now_us)
            return None
        if instance_id is not None and not member_id:
            member_id = self.instances.get(instance_id, "")
        refusal = self._identity_refusal(member_id, instance_id)
        if refusal is None:
            self._remove([self.members[member_id]], now_us)
        return refusal

    def expire(self, now_us: int) -> None:
        """Let time pass: silent members go, rounds that took too long end."""
        self.promised = {name: until for name, until in self.promised.items() if until > now_us}
        gone = [
            each for each in self.members.values() if each.expires_us <= now_us and not each.waits
        ]
        self._remove(gone, now_us)
        if self.phase is Phase.PREPARING_REBALANCE:
            self._expire_joins(now_us)
        elif self.phase is Phase.COMPLETING_REBALANCE and self.deadline_us <= now_us:
            self._remove([each for each in self.members.values() if not each.waits], now_us)

    def _expire_joins(self, now_us: int) -> None:
        self._maybe_complete(now_us)
        if self.phase is not Phase.PREPARING_REBALANCE or now_us < self.deadline_us:
            return
        self.promised.clear()
        # Static members may be restarting: their session decides, not this round.
        self._remove(
            [e for e in self.members.values() if e.joining is None and e.instance_id is None],
            now_us,
        )
        self._end_round(now_us)

    def _end_round(self, now_us: int) -> None:
        if self.phase is Phase.PREPARING_REBALANCE:
            if any(each.joining is not None for each in self.members.values()):
                self._complete(now_us)
            else:
                self.deadline_us = now_us + max(self._round_us(), 1)

    def _remove(self, removed: Sequence[Member], now_us: int) -> None:
        for member in removed:
            del self.members[member.member_id]
            if member.instance_id is not None:
                del self.instances[member.instance_id]
            for waiting in (member.joining, member.syncing):
                if waiting is not None:
                    self._answer(waiting, Refused(Refusal.UNKNOWN_MEMBER_ID, member.member_id))
        if not removed:
            return
        if self.leader not in self.members:
            waiting_first = sorted(self.members.values(), key=lambda each: each.joining is None)
            self.leader = waiting_first[0].member_id if waiting_first else ""
        self._rebalance(now_us)

    # -- offsets and the end

    def commit_refusal(
        self, member_id: str, generation: int, instance_id: str | None, now_us: int
    ) -> Refusal | None:
        """Whether offsets may be stored. Without members a client may that names no generation."""
        if self.phase is Phase.DEAD:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and not self.members:
            return None
        refusal = self._member_refusal(member_id, generation, instance_id)
        if refusal is not None:
            return refusal
        if self.phase is Phase.COMPLETING_REBALANCE:
            return Refusal.REBALANCE_IN_PROGRESS
        self.members[member_id].renew_session(now_us)
        return None

    @property
    def is_idle(self) -> bool:
        """Nothing in it depends on time."""
        return not self.members and not self.promised

    def die(self) -> None:
        """It was deleted; only a group without members can be."""
        assert self.phase is Phase.EMPTY
        self.promised.clear()
        self.phase = Phase.DEAD

    # -- inside

    def _member_refusal(
        self, member_id: str, generation: int, instance_id: str | None
    ) -> Refusal | None:
        if self.phase is Phase.DEAD:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        refusal = self._identity_refusal(member_id, instance_id)
        if refusal is None and generation != self.generation:
            return Refusal.ILLEGAL_GENERATION
        return refusal

    def _identity_refusal(self, member_id: str, instance_id: str | None) -> Refusal | None:
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                return Refusal.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return Refusal.FENCED_INSTANCE_ID
        return None if member_id in self.members else Refusal.UNKNOWN_MEMBER_ID

    def _answer(self, token: Any, outcome: Outcome) -> None:
        self.answers.append((token, outcome))


class GroupStanding(NamedTuple):
    """Two of them are equal when a restart may take one for the other."""

    generation: int
    instances: dict[str, str]


class DurableGroup(ConsumerGroup):
    def __init__(self, org: int, name: str) -> None:
        super().__init__(name)
        self.org = org
        self.logged: GroupStanding | None = None
        """What was logged last, whether the log took it or not, if the group had members then."""
        self.held: list[tuple[Any, Outcome]] | None = None
        """Answers that wait for the log, while a write of this group is under way."""
        self.too_large = False
        """The warning that it cannot last was logged."""

    @property
    def standing(self) -> GroupStanding | None:
        """None while there is nothing new to last."""
        return GroupStanding(self.generation, dict(self.instances)) if self._is_stable else None

    @property
    def _is_stable(self) -> bool:
        return self.phase is Phase.STABLE

    def restore(
        self,
        generation: int,
        protocol_type: str,
        protocol_name: str,
        leader: str,
        members: Sequence[Member],
    ) -> None:
        """After a restart: the last complete round."""
        self.phase = Phase.STABLE
        self.generation = generation
        self.protocol_type, self.protocol_name = protocol_type, protocol_name
        self.leader = leader
        self.members = {each.member_id: each for each in members}
        self.instances = {
            each.instance_id: each.member_id for each in members if each.instance_id is not None
        }
        self.logged = self.standing

    def start_over(self, now_us: int) -> None:
        """The generation could not be made to last: every member joins again."""
        if self._is_stable:
            self._rebalance(now_us)
