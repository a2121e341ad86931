"""Clicks of a made-up shop: the same ones every time, in the order in which they happened."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import headwater

TOPIC = "clicks"
PAGES = ("/", "/shoes", "/shoes/red", "/hats", "/cart", "/paid")
MORNING = datetime(2026, 5, 4, 8, 0, tzinfo=UTC)


def clicks(users: int = 40, visits: int = 3, seed: int = 7) -> list[dict[str, Any]]:
    """Every user comes a few times, an hour or more apart, and looks at some pages each time.

    The last click comes long after all others, so that every visit before it is known to be over.
    """
    chance = random.Random(seed)
    found = [
        {"user": f"user-{user:02d}", "page": page, "at": at.isoformat()}
        for user in range(users)
        for start in _starts(chance, visits)
        for page, at in _visit(chance, start)
    ]
    found.sort(key=lambda click: (click["at"], click["user"]))
    found.append({"user": "nobody", "page": "/", "at": (MORNING + timedelta(days=1)).isoformat()})
    return found


def _starts(chance: random.Random, visits: int) -> Iterator[datetime]:
    at = MORNING + timedelta(minutes=chance.randrange(60))
    for _ in range(visits):
        yield at
        at += timedelta(hours=2, minutes=chance.randrange(60))


def _visit(chance: random.Random, start: datetime) -> Iterator[tuple[str, datetime]]:
    at = start
    for _ in range(chance.randrange(1, 9)):
        yield chance.choice(PAGES), at
        at += timedelta(seconds=chance.randrange(5, 600))


def send(url: str, found: list[dict[str, Any]] | None = None) -> int:
    """Write the clicks to the topic; gives how many."""
    found = clicks() if found is None else found
    with headwater.Client(url) as client:
        for first in range(0, len(found), 100):
            part = found[first : first + 100]
            client.append(TOPIC, [{"data": click, "tag": click["page"]} for click in part])
    return len(found)
