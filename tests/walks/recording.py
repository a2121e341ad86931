"""A live server with all three stores does one small thing at a time, and each is recorded.

`python -m tests.walks.recording FILE` writes the recorded calls as JSON. It is a process of its
own: the tracer must be there before the package is imported and before any thread begins.

What depends on timing is left out, so that two runs record the same: nothing is due by its
interval (`_never`), each recording begins and ends when every thread is idle, and what a timer
calls is no part of a walk, whichever request or thread happens to run it (`TIMERS`).
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from tests.walks.tracer import PACKAGE, Call, Tracer

TIMERS: Final = ("Server._tick", "PressureWatch._sample", "PressureControl.tick", "Logs.load")
"""What happens anyway, whatever clients do: by a clock, or in whichever thread logs first."""
TRACER: Final = Tracer(TIMERS)
TRACER.install()  # before the imports below

from headwater.config.engine import EngineSettings  # noqa: E402
from headwater.config.kafka import KafkaSettings  # noqa: E402
from headwater.config.machines import MachineSettings  # noqa: E402
from headwater.config.wal import WalSettings  # noqa: E402
from headwater.wal import compiled_groups  # noqa: E402
from headwater.wire.kafka.apis import ApiKey  # noqa: E402
from tests.kafka.broker import Broker  # noqa: E402
from tests.kafka.raw_kafka import RawKafka  # noqa: E402
from tests.machines.conftest import ORDER  # noqa: E402
from tests.machines.test_rcpx_conduct import Wire  # noqa: E402
from tests.rig.kafka import batch_of  # noqa: E402
from tests.server.running_server import settings  # noqa: E402

vars(compiled_groups)["_native"] = None  # its twin takes the same steps, and they can be seen
ROUNDS: Final = 6
WARM_UPS: Final = 2
QUIET_S: Final = 0.03
NEVER_MS: Final = 3_600_000


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        walks = record(Path(directory) / "data")
    Path(sys.argv[1]).write_text(json.dumps(walks), encoding="utf-8")


def record(directory: Path) -> dict[str, list[list[Call]]]:
    """Calls of each round of each walk."""
    broker = _broker(directory)
    broker.start()
    walks = {name: _rounds(*steps) for name, steps in Clients(broker).steps().items()}
    broker.stop()
    walks["start"] = [_start(directory) for _ in range(ROUNDS // 2)]
    return walks


def _start(directory: Path) -> list[Call]:
    broker = _broker(directory)
    with TRACER.recording() as calls:
        broker.start()
    broker.stop()
    return _without_timers(calls)


def _broker(directory: Path) -> Broker:
    """One without timers, as far as settings can do that, so that only clients make it move."""
    wal = _never(WalSettings(shards=1, file_bytes=8 * 1024 * 1024))
    engine = EngineSettings(
        wal=wal, machines=_never(MachineSettings()), snapshot_wal_bytes=1, wait_us_min=0
    )
    chosen = settings(kafka_port=0, rcpx_port=0, deadlines={"drain_s": 2.0})
    kafka = _never(KafkaSettings())
    return Broker(directory, chosen, engine_settings=_never(engine), kafka_settings=kafka)


def _never(section: Any) -> Any:
    """These settings with every interval so long that nothing is ever due."""
    ends = {"_interval_ms": 1, "_idle_mark_after_us": 1_000}
    long = {
        field.name: NEVER_MS * factor
        for field in fields(section)
        for end, factor in ends.items()
        if f"_{field.name}".endswith(end)
    }
    return replace(section, **long)


class Steps(NamedTuple):
    walk: Callable[[], object]
    before: Callable[[], object] = lambda: None


class Clients:
    """Of all three protocols, with a topic, a queue, a Kafka topic and a machine of their own."""

    def __init__(self, broker: Broker) -> None:
        self._engine = broker.app.backend.engine
        self._http = broker.talk()
        self._kafka = RawKafka(broker.kafka_port)
        listener = broker.app.rcpx
        assert listener is not None
        self._rcpx = Wire(listener.port)
        self._numbers = count(1)
        self._instance = ""
        assert self._http.put("orders").status < 300
        assert self._http.put("mails", type="queue").status < 300
        self._kafka.make_topic("clicks")
        self._rcpx.ok("HELLO", {"protocol_version": 1})
        self._rcpx.ok("PUT_MACHINE", {"machine": "order", "version": 1, "definition": ORDER})

    def steps(self) -> dict[str, Steps]:
        return {
            "write": Steps(lambda: self._write("orders")),
            "read": Steps(self._read, lambda: self._write("orders")),
            "claim": Steps(self._claim, lambda: self._write("mails")),
            "produce": Steps(self._produce),
            "event": Steps(self._event, self._create),
            "checkpoint": Steps(self._engine.core.wake_maintenance, lambda: self._write("orders")),
        }

    def _write(self, topic: str) -> None:
        assert self._http.write(topic, {"total": 42}).status in (200, 201)

    def _read(self) -> None:
        assert self._http.diff("orders", 0, limit=2).json["records"]

    def _claim(self) -> None:
        assert self._http.queue("claim", "mails").json["count"] == 1

    def _produce(self) -> None:
        row = {"index": 0, "records": batch_of("click")}
        topics = [{"name": "clicks", "partition_data": [row]}]
        answer = self._kafka.ask(ApiKey.PRODUCE, {"acks": -1, "topic_data": topics})
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0

    def _create(self) -> None:
        self._instance = f"order-{next(self._numbers)}"
        params = {"machine": "order", "version": 1, "instance_id": self._instance}
        self._rcpx.ok("CREATE_INSTANCE", {**params, "initial_ctx": {"amount": 1}})

    def _event(self) -> None:
        self._rcpx.ok("APPLY_EVENT", {"instance_id": self._instance, "event": "PAY"})


def _rounds(walk: Callable[[], object], before: Callable[[], object]) -> list[list[Call]]:
    rounds = []
    for _ in range(WARM_UPS + ROUNDS):
        before()
        _wait_until_quiet()
        with TRACER.recording() as calls:
            walk()
            _wait_until_quiet()
        rounds.append(_without_timers(calls))
    return rounds[WARM_UPS:]


def _wait_until_quiet() -> None:
    """Until every thread waits for work and none has done anything for a while."""
    pause, seen = threading.Event(), -1
    while seen != TRACER.calls_seen or any(map(_works, sys._current_frames().values())):
        seen = TRACER.calls_seen
        pause.wait(QUIET_S)


def _works(innermost: FrameType) -> bool:
    """Threads without work are outside the package, or wait for the clock's bell."""
    frame: FrameType | None = innermost
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return not frame.f_code.co_filename.endswith("core/clock.py")
        frame = frame.f_back
    return False


def _without_timers(calls: list[Call]) -> list[Call]:
    return [call for call in calls if call.root not in TIMERS]


if __name__ == "__main__":
    main()
