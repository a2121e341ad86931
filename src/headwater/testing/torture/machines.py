"""State machines over HTTP and RCPX, and the topic that has their transitions."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from random import Random
from typing import Any, Final, Protocol
from urllib.parse import quote

from headwater.testing.torture.actor import AWAY_PAUSE_S, Actor, LedgerCheck, Load
from headwater.testing.torture.http_client import HttpClient, HttpReply, NoReplyError, NotSentError
from headwater.testing.torture.machine_ledger import (
    DEFINITION,
    MACHINE,
    NEVER_MADE,
    STATES,
    InstanceCondition,
    LedgerInstance,
    MachineLedger,
    RepeatableRequest,
)
from headwater.testing.torture.rcpx_client import MachineReply, RcpxClient
from headwater.testing.torture.reading import diff, gap_of

TRANSITIONS: Final = "machines:transitions"
TRANSITIONS_S: Final = 30.0
INSTANCES_OF_A_CALLER: Final = 12
BATCH_MAX: Final = 5
LISTED: Final = 500
PAUSE_S: Final = 0.006


class MachineCaller(Protocol):
    """One way to speak to state machines."""

    def create(self, identity: str) -> MachineReply: ...
    def apply(self, identity: str, params: Mapping[str, Any]) -> MachineReply: ...
    def batch(self, operations: list[dict[str, Any]]) -> MachineReply: ...
    def delete(self, identity: str) -> MachineReply: ...
    def compact(self) -> MachineReply: ...
    def close(self) -> None: ...


class HttpMachineCaller:
    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def create(self, identity: str) -> MachineReply:
        return self._post("/v0/instances", created(identity))

    def apply(self, identity: str, params: Mapping[str, Any]) -> MachineReply:
        return self._post(f"/v0/instances/{quote(identity)}/events", params)

    def batch(self, operations: list[dict[str, Any]]) -> MachineReply:
        return self._post("/v0/instances/batch", {"operations": operations, "mode": "atomic"})

    def delete(self, identity: str) -> MachineReply:
        return reply_of(self._client.request("DELETE", f"/v0/instances/{quote(identity)}"))

    def compact(self) -> MachineReply:
        return self._post("/v0/machines/compact", {})

    def close(self) -> None:
        self._client.close()

    def _post(self, path: str, body: Mapping[str, Any]) -> MachineReply:
        return reply_of(self._client.post(path, body))


class RcpxMachineCaller:
    def __init__(self, port: int) -> None:
        self._client = RcpxClient(port)

    def create(self, identity: str) -> MachineReply:
        return self._client.request("CREATE_INSTANCE", **created(identity))

    def apply(self, identity: str, params: Mapping[str, Any]) -> MachineReply:
        return self._client.request("APPLY_EVENT", instance_id=identity, **params)

    def batch(self, operations: list[dict[str, Any]]) -> MachineReply:
        return self._client.request("BATCH", ops=operations, mode="atomic")

    def delete(self, identity: str) -> MachineReply:
        return self._client.request("DELETE_INSTANCE", instance_id=identity)

    def compact(self) -> MachineReply:
        return self._client.request("COMPACT")

    def close(self) -> None:
        self._client.close()


def reply_of(answer: HttpReply) -> MachineReply:
    if answer.is_ok:
        return MachineReply(is_ok=True, result=answer.body)
    code = answer.code if answer.is_refusal else "INTERNAL_ERROR"
    return MachineReply(is_ok=False, result=answer.body, code=code)


def created(identity: str) -> dict[str, Any]:
    return {"machine": MACHINE, "version": 1, "instance_id": identity, "initial_ctx": {"n": 0}}


class MachineActor(Actor):
    name = "machines"

    def __init__(self) -> None:
        self.ledger = MachineLedger()
        self._owned: dict[str, list[LedgerInstance]] = {}
        self._numbers = itertools.count(1)

    def prepare(self, load: Load) -> None:
        with load.client() as client:
            client.make(f"/v0/machines/{MACHINE}/versions/1", {"definition": DEFINITION})

    def begin(self, load: Load) -> None:
        callers: dict[str, Callable[[], MachineCaller]] = {
            "http": lambda: HttpMachineCaller(load.client()),
            "rcpx-1": lambda: RcpxMachineCaller(load.ports.rcpx),
            "rcpx-2": lambda: RcpxMachineCaller(load.ports.rcpx),
        }
        if find_spec("rstmdb") is not None:
            # Late: it is not among what Headwater needs.
            from headwater.testing.torture.published_client import PublishedCaller

            callers["published"] = partial(PublishedCaller, load.ports.rcpx)
        for name, connect in callers.items():
            owned = self._owned.setdefault(name, [])
            step = partial(self._step, load, name, owned)
            load.begin_steps_of(f"machines/{name}", connect, step, PAUSE_S)

    def lose_power(self, since: float) -> None:
        self.ledger.lose_power(since)

    # -- the load

    def _step(
        self,
        load: Load,
        name: str,
        owned: list[LedgerInstance],
        caller: MachineCaller,
        random: Random,
    ) -> None:
        usable = [each for each in owned if each.is_usable]
        if len(usable) < INSTANCES_OF_A_CALLER:
            instance = self.ledger.add(f"{name}-{next(self._numbers)}")
            owned.append(instance)
            self._do(
                load,
                instance,
                InstanceCondition(True, 0),
                partial(caller.create, instance.identity),
            )
            return
        instance = random.choice(usable)
        count = instance.now.count
        match random.choices(("go", "batch", "refused", "delete", "compact"), (80, 8, 8, 2, 1))[0]:
            case "go":
                key = f"{instance.identity}/{count + 1}/{load.round}"
                params = {**event(count + 1), "idempotency_key": key}
                if random.random() < 0.3:
                    params["expected_state"] = STATES[count % len(STATES)]
                self._do(
                    load,
                    instance,
                    InstanceCondition(True, count + 1),
                    partial(caller.apply, instance.identity, params),
                    RepeatableRequest(key, count + 1),
                )
            case "batch":
                size = random.randint(2, BATCH_MAX)
                operations = [
                    {
                        "op": "APPLY_EVENT",
                        "params": {"instance_id": instance.identity, **event(count + number)},
                    }
                    for number in range(1, size + 1)
                ]
                if random.random() < 0.3:
                    operations[-1]["params"] = {"instance_id": instance.identity, "event": "NEVER"}
                self._do(
                    load,
                    instance,
                    InstanceCondition(True, count + size),
                    partial(caller.batch, operations),
                )
            case "refused":
                given = random.choice(
                    (
                        {"event": "NEVER", "payload": {"n": -1}},
                        {**event(count + 1), "expected_state": "elsewhere"},
                    )
                )
                answer = caller.apply(instance.identity, given)
                if answer.is_ok:
                    load.errors.append(f"{instance.identity}: should be refused: {given} {answer}")
            case "delete":
                gone = InstanceCondition(False, count)
                self._do(load, instance, gone, partial(caller.delete, instance.identity))
            case _:
                caller.compact()
                load.tally.add("machine compactions asked")

    def _do(
        self,
        load: Load,
        instance: LedgerInstance,
        after: InstanceCondition,
        send: Any,
        repeat: RepeatableRequest | None = None,
    ) -> None:
        try:
            answer: MachineReply = send()
        except NotSentError:
            if instance.now == NEVER_MADE:
                self.ledger.record(instance, NEVER_MADE, time.monotonic())
            raise
        except NoReplyError:
            self.ledger.doubt(instance, after, repeat)
            load.tally.add("machine events unknown")
            raise
        if answer.is_ok:
            self.ledger.record(instance, after, time.monotonic())
            load.tally.add("machine events acked")
        elif answer.is_refusal:
            load.tally.add("machine events refused")
        else:
            self.ledger.doubt(instance, after, repeat)
            load.tally.add(f"machine events unknown ({answer.code})")

    # -- the check

    def check(self, check: LedgerCheck) -> None:
        with check.client() as client:
            read: dict[str, dict[str, Any] | None] = {
                each["instance_id"]: each for each in self._listed(client)
            }
            for identity, instance in self.ledger.instances.items():
                if identity in read or instance.doubts:
                    answer = client.get(f"/v0/instances/{quote(identity)}")
                    read[identity] = answer.body if answer.is_ok else None
            known = {each: seen for each, seen in read.items() if seen is not None}
            check.report("instances", self.ledger.compare(known, time.monotonic()))
            self._repeat(check, client)
            check.report(TRANSITIONS, self._transitions(client))
            check.load.tally.add("instances compared", len(known))
            check.load.tally.add("transitions compared", self.ledger.transitions_expected())

    @staticmethod
    def _listed(client: HttpClient) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = []
        while True:
            path = f"/v0/instances?machine={MACHINE}&limit={LISTED}&offset={len(listed)}"
            answer = client.get(path)
            if not answer.is_ok:
                raise NoReplyError(f"{path}: {answer}")
            listed += answer.body["instances"]
            if not answer.body["has_more"]:
                return [{"instance_id": each.get("instance_id", each.get("id"))} for each in listed]

    def _repeat(self, check: LedgerCheck, client: HttpClient) -> None:
        """Requests in doubt, again under their keys: done once, and known to be repeats."""
        for instance in self.ledger.instances.values():
            repeat, instance.repeat = instance.repeat, None
            if repeat is None or not instance.is_usable:
                continue
            was_there = instance.now.count >= repeat.count
            params = {**event(repeat.count), "idempotency_key": repeat.key}
            answer = client.post(f"/v0/instances/{quote(instance.identity)}/events", params)
            if not answer.is_ok or answer.body["applied"] == was_there:
                check.report(
                    "instances",
                    [f"key: {instance.identity}, {instance.now}, {repeat}: {answer}"],
                )
            self.ledger.record(instance, InstanceCondition(True, repeat.count), time.monotonic())
            check.load.tally.add("machine events sent again")

    def _transitions(self, client: HttpClient) -> list[str]:
        """The topic follows in the background; it must have everything soon."""
        until = time.monotonic() + TRANSITIONS_S
        seen: list[Mapping[str, Any]] = []
        gaps = []
        cursor = 0
        while len(seen) < self.ledger.transitions_expected() and time.monotonic() < until:
            answer = diff(client, TRANSITIONS, cursor, wait_ms=200)
            if answer.status == 404:
                time.sleep(AWAY_PAUSE_S)
                continue
            if not answer.is_ok:
                raise NoReplyError(f"diff of {TRANSITIONS}: {answer}")
            gap = gap_of(answer.body)
            if gap is not None:
                gaps.append(f"I6: {gap} among the transitions")
            seen += [record["data"] for record in answer.body["records"]]
            cursor = int(answer.body["next_from_seq"])
        # Anything more than that?
        answer = diff(client, TRANSITIONS, cursor, wait_ms=300)
        if answer.is_ok:
            seen += [record["data"] for record in answer.body["records"]]
        return gaps + self.ledger.check_transitions(seen)


def event(count: int) -> dict[str, Any]:
    return {"event": "GO", "payload": {"n": count}}
