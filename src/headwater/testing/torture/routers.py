"""Routers: one source, copies at least once, exactly once, filtered, and one router after another.

A copy has its original's data, which names the write it is from. So what a destination should have
is what its source has, record for record; of an exactly-once destination every copy also keeps its
seq for ever.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.testing.torture.actor import AWAY_PAUSE_S, LedgerCheck, Load
from headwater.testing.torture.http_client import HttpClient, NoReplyError, topic_path
from headwater.testing.torture.reading import read_topic
from headwater.testing.torture.topic_ledger import Key, Stored, shortened
from headwater.testing.torture.topics import TopicActor, WriteKind

SOURCE: Final = WriteKind("r-source", writers=2)
CATCH_UP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class RouterKind:
    name: str
    source: str
    dest: str
    is_exact: bool
    tag: str | None = None

    def settings(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "dest": self.dest,
            "guarantee": "exactly_once" if self.is_exact else "at_least_once",
            **({} if self.tag is None else {"filter": self.tag}),
        }


ROUTERS: Final = (
    RouterKind("copies", SOURCE.name, "r-copies", is_exact=False),
    RouterKind("exact", SOURCE.name, "r-exact", is_exact=True),
    RouterKind("red", SOURCE.name, "r-red", is_exact=True, tag="red"),
    RouterKind("chain", "r-exact", "r-chain", is_exact=True),
)


class RouterActor(TopicActor):
    name = "routers"

    def __init__(self) -> None:
        super().__init__((SOURCE,))
        self._copy_positions: dict[str, dict[int, Key]] = {}
        """Where each copy of an exactly-once destination was found."""

    def prepare(self, load: Load) -> None:
        super().prepare(load)
        with load.client() as client:
            for router in ROUTERS:
                client.make(f"/v0/routers/{router.name}", router.settings())

    def check(self, check: LedgerCheck) -> None:
        super().check(check)
        with check.client() as client:
            contents = {SOURCE.name: read_topic(client, SOURCE.name).records}
            for router in ROUTERS:
                self._wait_until_caught_up(client, check, router)
                copies = read_topic(client, router.dest).records
                contents[router.dest] = copies
                originals = [
                    each
                    for each in contents[router.source]
                    if router.tag is None or each.tag == router.tag
                ]
                check.report(
                    router.dest, copy_findings(originals, copies, is_exact=router.is_exact)
                )
                if router.is_exact:
                    check.report(router.dest, self._moved(router.dest, copies))
                check.load.tally.add("copies compared", len(copies))

    def _moved(self, topic: str, copies: Sequence[Stored]) -> list[str]:
        places = self._copy_positions.get(topic, {})
        now = {each.seq: each.key for each in copies}
        self._copy_positions[topic] = now
        return shortened(
            [
                f"router: seq {seq} had {key} and has {now.get(seq)}"
                for seq, key in places.items()
                if now.get(seq) != key
            ]
        )

    @staticmethod
    def _wait_until_caught_up(client: HttpClient, check: LedgerCheck, router: RouterKind) -> None:
        until = time.monotonic() + CATCH_UP_S
        while time.monotonic() < until:
            answer = client.get(f"/v0/routers/{router.name}")
            if not answer.is_ok:
                raise NoReplyError(f"router {router.name}: {answer}")
            source = client.get(topic_path(router.source))
            if answer.body["lag"] == 0 and source.is_ok:
                return
            time.sleep(AWAY_PAUSE_S)
        check.report(router.name, [f"router: it is behind after {CATCH_UP_S:.0f} s"])


def copy_findings(
    originals: Sequence[Stored], copies: Sequence[Stored], *, is_exact: bool
) -> list[str]:
    """Whether the copies are those of the originals, in their order."""
    expected = [each.key for each in originals]
    copied = [each.key for each in copies]
    if not is_exact:
        copied = list(dict.fromkeys(copied))  # the first of each
    if copied == expected:
        return []
    wrong = []
    missing = [key for key in expected if key not in set(copied)]
    more = [key for key in copied if key not in set(expected)]
    if missing:
        wrong.append(f"router: {len(missing)} never copied, the first {missing[:5]}")
    if more:
        wrong.append(f"router: {len(more)} copies of nothing, the first {more[:5]}")
    if len(copied) > len(set(copied)):
        wrong.append(f"router: {len(copied) - len(set(copied))} copied twice")
    return wrong or ["router: the copies are in another order"]
