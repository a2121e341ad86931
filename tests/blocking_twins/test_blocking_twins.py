"""The blocking twins are what their sources say: nobody changed one by hand, or forgot one."""

from __future__ import annotations

import re

import pytest

from tests.blocking_twins import twins

SOURCES = {source: (twins.PACKAGE / source).read_text() for source in twins.TWINS}


@pytest.mark.parametrize("source", twins.TWINS)
def test_a_twin_is_what_its_source_gives_today(source: str) -> None:
    written = (twins.PACKAGE / twins.TWINS[source]).read_text()
    assert written == twins.twin(source), "stale; run: make twins"
    assert written.splitlines()[0].startswith("# Generated from ")


@pytest.mark.parametrize("source", twins.TWINS)
def test_nothing_awaitable_is_left_in_a_twin(source: str) -> None:
    written = (twins.PACKAGE / twins.TWINS[source]).read_text()
    code = "\n".join(written.splitlines()[1:])
    assert not re.search(r"\basync\b|\bawait\b|Async|asyncio|awaitable|event loop", code)


def test_every_row_of_the_tables_is_used() -> None:
    text = "\n".join(SOURCES.values())
    words = set(re.findall(r"\w+", text))
    assert not {name for name in twins.NAMES if name not in words}
    assert not {said for said in twins.TEXTS if said not in text}


def test_a_source_becomes_its_twin_token_by_token() -> None:
    source = '''\
"""For event loops, `AsyncClient`."""
async def f(self) -> AsyncIterator[int]:
    async with aclosing(self._f()) as items:
        async for item in items:  # of an AsyncClient
            yield await self.g(item, "await", *(await h()))
'''
    assert (
        twins.translated(source.replace("For event", "for event"))
        == '''\
"""for threads, `Client`."""
def f(self) -> Iterator[int]:
    with closing(self._f()) as items:
        for item in items:  # of an Client
            yield self.g(item, "await", *(h()))
'''
    )
