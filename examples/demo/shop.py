"""A day in a made-up shop and its warehouse: the same events every time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

EVENTS: Final = "shop.events"
PARCELS: Final = "shop.parcels"
LOST: Final = "shop.parcels.lost"
SENSORS: Final = "warehouse.sensors"

PRODUCTS: Final = {
    "rain jacket": 8900,
    "rubber boots": 4900,
    "umbrella": 1900,
    "wool hat": 2400,
    "tea mug": 1200,
    "paper map": 950,
}
CITIES: Final = ("Bergen", "Galway", "Porto", "Turku", "Brest", "Gdynia")
TO_ORDER: Final = 0.35
PER_BATCH: Final = 50


def events(count: int, seed: int = 11) -> list[dict[str, Any]]:
    """Records as they are written: people look at things, and some buy them."""
    chance = random.Random(seed)
    found: list[dict[str, Any]] = []
    names = list(PRODUCTS)
    number = 0
    while len(found) < count:
        user = f"u{chance.randrange(2_000):04d}"
        looked_at = chance.choices(names, k=chance.randrange(1, 6))
        found.extend(_event("view", user, product=product) for product in looked_at)
        if chance.random() < TO_ORDER:
            number += 1
            product = chance.choice(names)
            pieces = chance.choice((1, 1, 1, 2, 3))
            order = {
                "order": f"o{number:05d}",
                "product": product,
                "pieces": pieces,
                "cents": PRODUCTS[product] * pieces,
                "city": chance.choice(CITIES),
            }
            found.append(_event("order", user, **order))
    return found[:count]


def _event(kind: str, user: str, **more: Any) -> dict[str, Any]:
    return {"data": {"kind": kind, "user": user, **more}, "tag": kind}


def readings(count: int, seed: int = 12) -> Iterator[tuple[str, dict[str, Any]]]:
    """Sensor and reading. The readings of one sensor are numbered, so that order can be checked."""
    chance = random.Random(seed)
    numbers: dict[str, int] = {}
    for _ in range(count):
        sensor = f"hall-{chance.randrange(1, 9)}"
        numbers[sensor] = numbers.get(sensor, 0) + 1
        celsius = round(chance.gauss(14, 3), 1)
        yield sensor, {"sensor": sensor, "number": numbers[sensor], "celsius": celsius}
