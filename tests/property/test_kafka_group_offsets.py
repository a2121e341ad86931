"""Offsets of groups and the index that drops a topic's, against one dict that is walked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.engine.kafka.group_state import Committed, GroupOffsets, OffsetKey
from headwater.format.kafka.events import OffsetRow

ORGS = (1, 2)
GROUPS = ("readers", "writers", "gone")
TOPICS = ("orders", "clicks", "views")

org = st.sampled_from(ORGS)
group = st.sampled_from(GROUPS)
topic = st.sampled_from(TOPICS)
keys = st.lists(st.tuples(topic, st.integers(0, 2)), max_size=6)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), org, group, keys),
        st.tuples(st.just("forget"), org, group, keys),
        st.tuples(st.just("forget_group"), org, group, st.none()),
        st.tuples(st.just("forget_topic"), org, topic, st.none()),
        st.tuples(st.just("restore"), org, group, st.none()),
    ),
    max_size=40,
)


def row(name: str, partition: int, offset: int) -> OffsetRow:
    return OffsetRow(name, partition, offset, -1, "", -1)


class Walked:
    """Every offset by organisation, group, topic and partition; whatever is asked, all are seen."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[int, str, OffsetKey], int] = {}

    def take(self, kind: str, owner: int, name: str, rows: list[OffsetKey] | None, at: int) -> None:
        if kind == "commit":
            self.offsets.update({(owner, name, key): at for key in rows or ()})
        else:
            self.offsets = {
                known: offset
                for known, offset in self.offsets.items()
                if not self._is_forgotten(known, kind, owner, name, rows)
            }

    def _is_forgotten(
        self,
        known: tuple[int, str, OffsetKey],
        kind: str,
        owner: int,
        name: str,
        rows: list[OffsetKey] | None,
    ) -> bool:
        theirs, key = known[:2] == (owner, name), known[2]
        return {
            "forget": theirs and key in (rows or ()),
            "forget_group": theirs,
            "forget_topic": known[0] == owner and key[0] == name,
            "restore": False,
        }[kind]


def apply(
    offsets: GroupOffsets, kind: str, owner: int, name: str, rows: list[OffsetKey] | None, at: int
) -> GroupOffsets:
    if kind == "commit":
        offsets.commit(owner, name, [row(*key, at) for key in rows or ()])
    elif kind == "forget_topic":
        offsets.forget_topic(owner, name)
    elif kind == "restore":
        metas = offsets.meta()
        offsets = GroupOffsets()
        offsets.restore(metas)
    else:
        offsets.forget(owner, name, rows)
    return offsets


@settings(deadline=None)
@given(steps)
def test_offsets_are_those_of_a_dict_that_is_walked(
    told: list[tuple[str, int, str, list[OffsetKey] | None]],
) -> None:
    offsets, walked = GroupOffsets(), Walked()
    for at, step in enumerate(told):
        offsets = apply(offsets, *step, at)
        walked.take(*step, at)
        found = {
            (owner, name, key): committed.offset
            for owner in ORGS
            for name in offsets.groups(owner)
            for key, committed in offsets.of(owner, name).items()
        }
        assert found == walked.offsets
        for owner in ORGS:
            with_offsets = {name for known, name, _ in found if known == owner}
            assert set(offsets.groups(owner)) == with_offsets
    for owner in ORGS:
        for name in TOPICS:
            offsets.forget_topic(owner, name)
    assert offsets.meta() == ()
    assert not offsets._readers


class NotWalked(dict[Any, Any]):
    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("all groups were looked at")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_dropping_a_topic_looks_at_no_group_that_never_read_it() -> None:
    offsets = GroupOffsets()
    offsets.commit(1, "readers", [row("orders", 0, 5), row("clicks", 0, 7)])
    offsets.commit(1, "others", [row("clicks", 0, 9)])
    offsets._groups = NotWalked(offsets._groups)
    offsets.forget_topic(1, "orders")
    offsets.forget_topic(1, "nobody reads it")
    assert offsets.of(1, "readers") == {("clicks", 0): Committed(7)}
    assert offsets.of(1, "others") == {("clicks", 0): Committed(9)}
