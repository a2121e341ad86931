"""Who may settle a job: only its holder, in time, under the current number if one is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headwater.model.queue.grant import Grant

Claims = dict[int, list[int]]
"""Jobs by the number of their claim."""


class Verdict(NamedTuple):
    """What an ack, nack or extend did: to these jobs, and not to those."""

    taken: list[int]
    skipped: list[int]
    claims: Claims
    """The jobs taken, by the claim they were held under: one event of the log each."""


class Dying(NamedTuple):
    """A job that was delivered as often as it may be, and is to be put away."""

    seq: int
    deliveries: int


def _one_claim(
    leases: Mapping[int, Grant], seqs: list[int], lease_ids: Sequence[int] | None
) -> Grant | None:
    """The claim that holds all of these, each named once: what most workers ask for. Looked up
    without a step of ours for each job."""
    grants = list(map(leases.get, seqs))
    first = grants[0] if grants else None
    if first is None or grants.count(first) != len(seqs) or len(set(seqs)) != len(seqs):
        return None
    if lease_ids is not None and list(lease_ids).count(first.lease_id) != len(seqs):
        return None
    return first


def judge(
    leases: Mapping[int, Grant],
    node: str,
    seqs: Iterable[int],
    lease_ids: Sequence[int] | None,
    now_us: int,
) -> Verdict:
    """Which of these jobs the node may settle now; each of them once."""
    seqs = list(seqs)
    grant = _one_claim(leases, seqs, lease_ids)
    if grant is not None and grant.node == node and now_us <= grant.deadline_us:
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
