"""Memberships of consumer groups in the log, and the answers that wait until they are there.

The coordinator logs a generation when its leader has assigned, before any member gets its
assignment; so it does for a static member that comes back under a new id. That is one event a
round and none a heartbeat. If the log refuses, the members get COORDINATOR_NOT_AVAILABLE and join
again, as with Kafka: a generation that is not in the log could not fence the one that is. An empty
group is logged too, but no answer waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.core.errors import HeadwaterError
from headwater.engine.kafka.memberships import empty_membership, group_from, membership_of
from headwater.engine.kafka.store import KafkaStore
from headwater.engine.kafka.unavailable import UnavailableKafka
from headwater.engine.owner import Pending
from headwater.format.kafka.events import GroupMembership
from headwater.model.kafka_group import Outcome, Phase, Refusal, Refused
from headwater.model.kafka_group.durable_group import DurableGroup, GroupStanding
from headwater.observe.logs import Logger

_UNAVAILABLE = Refused(Refusal.COORDINATOR_NOT_AVAILABLE)


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
