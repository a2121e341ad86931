"""Who may ack, nack or extend a job: only its holder, in time, under the current number if one is
named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headwater.model.queue.grant import Grant
from headwater.model.queue.held import Held

Claims = dict[int, list[int]]
"""Jobs by the number of their claim."""


class Verdict(NamedTuple):
    """What an ack, nack or extend did: to these jobs, and not to those."""

    taken: list[int]
    skipped: list[int]
    claims: Claims
    """The jobs taken, by the claim they were held under: one event of the log each."""


class ExhaustedJob(NamedTuple):
    """A job that was delivered as often as it may be, and is to be dead-lettered."""

    seq: int
    deliveries: int
    is_copied: bool
    """It is safe in the dead letter topic already."""


def judge(
    leases: Held[Grant],
    node: str,
    seqs: Iterable[int],
    lease_ids: Sequence[int] | None,
    now_us: int,
) -> Verdict:
    """Which of these jobs the node may ack, nack or extend now; each of them once."""
    seqs = list(seqs)
    grant = leases.one_holder(seqs)
    if (
        grant is not None
        and grant.node == node
        and now_us <= grant.deadline_us
        and (lease_ids is None or list(lease_ids).count(grant.lease_id) == len(seqs))
    ):
        return Verdict(seqs, [], {grant.lease_id: seqs})
    taken: list[int] = []
    skipped: list[int] = []
    claims: Claims = {}
    named: set[int] = set()
    for at, seq in enumerate(seqs):
        grant = leases.get(seq)
        if (
            grant is None
            or grant.node != node
            or now_us > grant.deadline_us
            or (lease_ids is not None and lease_ids[at] != grant.lease_id)
            or seq in named
        ):
            skipped.append(seq)
        else:
            named.add(seq)
            taken.append(seq)
            claims.setdefault(grant.lease_id, []).append(seq)
    return Verdict(taken, skipped, claims)
