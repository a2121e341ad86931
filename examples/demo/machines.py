"""Orders walk through a state machine, several at once; what is not allowed is refused."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import httpx
import shop
from stage import Figures, NotHereError, Stage, same, threads

import headwater

MACHINE = "order"
WALKERS = 8
ORDERS_MAX = 120
DEFINITION = {
    "states": ["placed", "review", "paid", "packed", "delivered", "returned"],
    "initial": "placed",
    "transitions": [
        {"from": "placed", "event": "PAY", "to": "paid", "guard": "ctx.cents < 15000"},
        {"from": "placed", "event": "PAY", "to": "review"},
        {"from": "review", "event": "APPROVE", "to": "paid"},
        {"from": "paid", "event": "PACK", "to": "packed"},
        {"from": "packed", "event": "DELIVER", "to": "delivered"},
        {"from": ["packed", "delivered"], "event": "RETURN", "to": "returned"},
    ],
}
RETURNS_EVERY = 9


class Walking:
    """What one order went through."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)

    def walk(self, order: dict[str, Any]) -> tuple[str, int, bool]:
        """Gives the last state, how many steps it took, and whether nonsense was refused."""
        name = order["order"]
        made = {"machine": MACHINE, "instance_id": name, "initial_ctx": order}
        self._post("/v0/instances", made)
        refused = self._http.post(f"/v0/instances/{name}/events", json={"event": "DELIVER"})
        state = self._apply(name, "PAY")
        events = ["PACK", "DELIVER"]
        if state == "review":
            events.insert(0, "APPROVE")
        if int(name.lstrip("o")) % RETURNS_EVERY == 0:
            events.append("RETURN")
        for event in events:
            state = self._apply(name, event)
        return state, len(events) + 1, refused.status_code == httpx.codes.CONFLICT

    def _apply(self, name: str, event: str) -> str:
        return str(self._post(f"/v0/instances/{name}/events", {"event": event})["to_state"])

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._http.post(path, json=body)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


def run(stage: Stage) -> Figures:
    with httpx.Client(base_url=stage.url) as http:
        made = http.put(f"/v0/machines/{MACHINE}/versions/1", json={"definition": DEFINITION})
    if made.status_code == httpx.codes.NOT_FOUND:
        raise NotHereError("this server has no state machines")
    made.raise_for_status()
    orders = first_orders(stage)
    walking = Walking(stage.url)
    started = time.monotonic()
    with threads(WALKERS) as crew:
        walked = list(crew.map(walking.walk, orders))
    elapsed_s = time.monotonic() - started
    expected = Counter(state for state, _, _ in walked)
    steps = sum(count for _, count, _ in walked)
    same("states of the orders", expected, states(stage))
    same("refusals", len(orders), sum(refused for _, _, refused in walked))
    first = min(str(order["order"]) for order in orders)  # not whoever of the writers was first
    path = history(stage, first)
    told = ", ".join(f"{count} {state}" for state, count in sorted(expected.items()))
    return {
        "machines": f"{len(orders)} orders walked {steps} steps, {steps / elapsed_s:,.0f} a "
        "second, each on the disk before its answer",
        "now": f"{told}; {len(orders)} deliveries before payment were refused",
        "history": f"{first}: {' > '.join(path)}",
    }


def first_orders(stage: Stage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with headwater.Client(stage.url) as client:
        cursor, caught_up = 0, False
        while len(found) < ORDERS_MAX and not caught_up:
            page = client.diff(shop.EVENTS, cursor, match="order")
            found += [record.data for record in page.records]
            cursor, caught_up = page.next_from_seq, page.caught_up
    return found[:ORDERS_MAX]


def states(stage: Stage) -> Counter[str]:
    """How many instances are in which state, as the server tells it."""
    counts: Counter[str] = Counter()
    with httpx.Client(base_url=stage.url) as http:
        for state in DEFINITION["states"]:
            page = http.get(
                "/v0/instances", params={"machine": MACHINE, "state": state, "limit": 1000}
            ).json()
            if page.get("instances"):
                counts[str(state)] = len(page["instances"])
    return counts


def history(stage: Stage, name: str) -> list[str]:
    with httpx.Client(base_url=stage.url) as http:
        found = http.get(f"/v0/instances/{name}/history").json()
    return [str(entry["to_state"]) for entry in found["entries"]]
