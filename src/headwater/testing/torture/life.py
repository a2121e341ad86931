"""One life: a data directory from its first start to its last check."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.testing.torture.actor import Actor, LedgerCheck, Load, ServerPorts
from headwater.testing.torture.beside import back_up
from headwater.testing.torture.block_image import BlockImage
from headwater.testing.torture.http_client import HttpClient, NoReplyError, NotSentError
from headwater.testing.torture.outcome import BrokenPromise, End, Tally
from headwater.testing.torture.plan import LifePlan, RoundPlan
from headwater.testing.torture.server import ServerFailedError, ServerUnderTest
from headwater.testing.torture.topic_ledger import TopicLedger
from headwater.testing.torture.topics import TopicActor

JOIN_TIMEOUT_S: Final = 90.0
COMMAND_TIMEOUT_S: Final = 300.0
FULL_DISK_S: Final = 1.0
READY: Final = ("ok", "full")

Say = Callable[[str], None]


@dataclass(slots=True)
class Broken:
    """Why a life ended early."""

    violations: list[BrokenPromise]
    where: str


class Life:
    def __init__(
        self, seed: int, plan: LifePlan, actors: Sequence[Actor], work: Path, tally: Tally, say: Say
    ) -> None:
        self._seed = seed
        self._plan = plan
        self._actors = actors
        self._tally = tally
        self._say = say
        self._image = BlockImage(work) if plan.is_on_image else None
        self._directory = work / "data"
        self._cold = work / "cold" if plan.has_cold_tier else None
        self._server = ServerUnderTest(work)
        self._end, self._ended_at = End.STOP, 0.0
        self._work = work

    @property
    def data(self) -> Path:
        return self._directory if self._image is None else self._image.data

    @property
    def server(self) -> ServerUnderTest:
        return self._server

    def run(self, is_time_over: Callable[[], bool]) -> Broken | None:
        """None when every promise was kept."""
        try:
            for plan in self._plan.rounds:
                broken = self._round(plan)
                if broken is not None:
                    return broken
                if is_time_over():
                    break
            return self._last_check()
        finally:
            self._server.abandon()

    def keep(self) -> Path:
        """Where the data is that a violation was found in, also when the image is gone."""
        self._server.abandon()
        if self._image is None:
            return self._directory
        kept = self._work / "kept"
        shutil.copytree(self._image.data, kept, ignore=shutil.ignore_patterns("prepared.next"))
        return kept

    def close(self) -> None:
        self._server.abandon()
        if self._image is not None:
            self._image.close()

    # -- a round

    def _round(self, plan: RoundPlan) -> Broken | None:
        where = f"life {self._plan.number} round {plan.number}"
        began = time.monotonic()
        before = self._tally.counts()
        try:
            started_s = self._start(plan)
            load = self._new_load(plan)
            if plan.number == 0:
                for actor in self._actors:
                    actor.prepare(load)
            else:
                broken = self._check(load, where, is_last=False)
                if broken is not None:
                    return broken
            broken = self._load(plan, load, where)
        except (ServerFailedError, NoReplyError, NotSentError) as error:
            return Broken([BrokenPromise("server", type(error).__name__, str(error))], where)
        if broken is not None:
            return broken
        after = self._tally.counts()
        acked = sum(after.get(name, 0) - before.get(name, 0) for name in after if "acked" in name)
        self._say(
            f"{where}: ready in {started_s:.1f} s, {acked:,} acks, {plan.end.value}"
            f"{', disk filled' if plan.is_disk_filled else ''}"
            f"{f', {len(plan.killed_starts)} killed starts' if plan.killed_starts else ''}"
            f"{', clock moved' if plan.clock_jumps else ''}"
            f"{', stopped for a while' if plan.pauses else ''}"
            f"; {time.monotonic() - began:.1f} s"
        )
        return None

    def _start(self, plan: RoundPlan) -> float:
        """Seconds from the start to ready."""
        if plan.is_verified and plan.number > 0:
            self._verify()
        flags = list(plan.flags)
        if self._cold is not None:
            flags += ["--cold-dir", str(self._cold)]
        for left, seconds in zip(
            reversed(range(len(plan.killed_starts))), plan.killed_starts, strict=True
        ):
            self._server.begin(self.data, flags, plan.environment)
            time.sleep(seconds)
            if plan.is_power_lost_at_start and not left and self._image is not None:
                self._lose_power_at_start(self._image)
            else:
                self._server.kill()
                self._tally.add("starts killed")
        if plan.is_embedded and plan.number > 0:
            self._let_others_own(plan)
        self._server.begin(self.data, flags, plan.environment)
        took_s = self._server.wait_until_ready()
        self._tally.add("starts")
        return took_s

    def _lose_power_at_start(self, image: BlockImage) -> None:
        """In the middle of a recovery, or behind it. No client got an answer since the end before;
        what was not synced then may not be now."""
        image.lose_power(self._server.kill)
        for actor in self._actors:
            actor.lose_power(self._ended_at)
        self._end = End.POWER_LOSS
        self._tally.add("power lost at a start")

    def _let_others_own(self, plan: RoundPlan) -> None:
        load = self._new_load(plan)
        wrong = [each for actor in self._actors for each in actor.own(load)]
        if wrong:
            raise ServerFailedError("; ".join(wrong))

    def _new_load(self, plan: RoundPlan) -> Load:
        server = self._server
        ports = ServerPorts(server.http_port, server.kafka_port, server.rcpx_port)
        return Load(self._seed, self._plan.number, plan.number, ports, self.data, self._tally)

    def _load(self, plan: RoundPlan, load: Load, where: str) -> Broken | None:
        for actor in self._actors:
            actor.begin(load)
        load.begin("faults", lambda: self._faults(plan, load))
        load.stop.wait(plan.load_s)
        try:
            self._finish(plan, load)
        finally:
            load.stop.set()
        late = load.join(JOIN_TIMEOUT_S)
        if late:
            load.errors.append(f"threads that did not end: {', '.join(late)}")
        if load.errors:
            return Broken([BrokenPromise("load", "E", each) for each in load.errors], where)
        return None

    def _faults(self, plan: RoundPlan, load: Load) -> None:
        """What happens meanwhile, in the order of its time."""
        events: list[tuple[float, Callable[[], None]]] = []
        for at, seconds in plan.pauses:
            events.append((at, lambda seconds=seconds: self._server.pause(seconds, load.stop)))  # type: ignore[misc]
        for at, shift_ms in plan.clock_jumps:
            events.append((at, lambda shift_ms=shift_ms: self._server.shift_clock(shift_ms)))  # type: ignore[misc]
        if plan.is_disk_filled and self._image is not None:
            events.append((plan.load_s * 0.2, lambda: self._fill_the_disk(load.stop)))
        if plan.has_backup:
            events.append((plan.load_s * 0.5, lambda: self._back_up(load)))
        began = time.monotonic()
        for at, act in sorted(events, key=lambda event: event[0]):
            if load.stop.wait(max(at - (time.monotonic() - began), 0)):
                return
            act()
            self._tally.add("faults meanwhile")

    def _back_up(self, load: Load) -> None:
        ledgers: dict[str, TopicLedger] = {}
        for actor in self._actors:
            if isinstance(actor, TopicActor):
                ledgers |= actor.ledgers
        back_up(load, self._work, ledgers, self._cold)

    def _fill_the_disk(self, stop: threading.Event) -> None:
        assert self._image is not None
        try:
            self._image.fill()
            stop.wait(FULL_DISK_S)
        finally:
            self._image.make_room()
        self._tally.add("full disks")

    def _finish(self, plan: RoundPlan, load: Load) -> None:
        self._end, self._ended_at = plan.end, time.monotonic()
        self._tally.add(f"ended by {plan.end.value}")
        load.server_left.set()
        if plan.end is End.STOP:
            # Polite: a server that is asked to stop answers what it took.
            self._server.stop()
        elif plan.end is End.KILL or self._image is None:
            self._server.kill()
        else:

            def end_everything() -> None:
                self._server.kill()
                load.stop.set()
                load.join(JOIN_TIMEOUT_S)

            since = self._image.lose_power(end_everything)
            for actor in self._actors:
                actor.lose_power(since)

    # -- checks

    def _check(self, load: Load, where: str, *, is_last: bool) -> Broken | None:
        check = LedgerCheck(load, self._end, is_last)
        client = HttpClient(load.ports.http)
        ready = client.get("/v0/ready")
        client.close()
        if not ready.is_ok or ready.body.get("status") not in READY:
            check.report("server", [f"readiness: after a start: {ready.status} {ready.body}"])
        for actor in self._actors:
            actor.check(check)
            self._tally.add(f"checks of {actor.name}")
        if load.errors:
            check.report("check", [f"E: {each}" for each in load.errors])
        return (
            Broken(check.violations, f"{where}, after {self._end.value}")
            if check.violations
            else None
        )

    def _last_check(self) -> Broken | None:
        where = f"life {self._plan.number}, the last check"
        plan = self._plan.rounds[-1]
        try:
            self._start(plan)
            broken = self._check(self._new_load(plan), where, is_last=True)
            if broken is not None:
                return broken
            self._server.stop()
            self._verify()
        except (ServerFailedError, NoReplyError, NotSentError) as error:
            return Broken([BrokenPromise("server", type(error).__name__, str(error))], where)
        return None

    def _verify(self) -> None:
        """`headwater verify` finds nothing; an unfinished write at the end is no finding."""
        words = [sys.executable, "-m", "headwater", "verify", str(self.data)]
        if self._cold is not None and self._cold.exists():
            words += ["--cold", str(self._cold)]
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
        self._tally.add("verified")
        if done.returncode != 0:
            raise ServerFailedError(
                f"{' '.join(words[2:])} ended with {done.returncode}: {done.stdout} {done.stderr}"
            )
