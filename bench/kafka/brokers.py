"""Headwater and Apache Kafka as processes of their own, for clients of the Kafka protocol."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import uuid
from pathlib import Path

from confluent_kafka.admin import AdminClient

from bench.log_under_test import WrongResultError
from bench.server.processes import HeadwaterServer, ServerProcess

INSTALL = "bench/kafka/fetch DIRECTORY, then KAFKA_HOME=DIRECTORY"
_CLUSTER = "aGVhZHdhdGVyLWJlbmNoLg"
"""Any 16 bytes in base64: a cluster of one."""
HEAP = "-Xmx1G"


def missing() -> str | None:
    """Why Apache Kafka cannot be measured beside."""
    home = os.environ.get("KAFKA_HOME")
    if not home:
        return f"no Apache Kafka here: {INSTALL}"
    if not list(Path(home, "libs").glob("kafka_*.jar")):
        return f"KAFKA_HOME has no libs/kafka_*.jar: {INSTALL}"
    if shutil.which("java") is None:
        return "no java here: apt-get install default-jre-headless"
    return None


class HeadwaterBroker(HeadwaterServer):
    """`headwater serve` with its defaults, on free ports."""

    @property
    def command(self) -> list[str]:
        return [*super().command, "--kafka-port", "0"]

    @property
    def bootstrap(self) -> str:
        ports = json.loads(self._port_file.read_text(encoding="utf-8"))
        return f"127.0.0.1:{ports['kafka']}"

    @property
    def log_files(self) -> list[Path]:
        return sorted((self.directory / "data" / "kafka").glob("*.log"))


class ApacheKafka(ServerProcess):
    """One broker in KRaft mode with its defaults, or one that flushes every batch."""

    name = "Apache Kafka"

    def __init__(self, directory: Path, *, flushes: bool = False) -> None:
        super().__init__(directory)
        why_not = missing()
        if why_not is not None:
            raise WrongResultError(why_not)
        self._libs = str(Path(os.environ["KAFKA_HOME"], "libs", "*"))
        self.port, controller = _free_port(), _free_port()
        if flushes:
            self.name = "Apache Kafka, flush.interval.messages=1"
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(directory / "logs"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        if flushes:
            lines["log.flush.interval.messages"] = "1"
        self._settings = directory / "server.properties"
        self._settings.write_text(
            "".join(f"{name}={value}\n" for name, value in lines.items()), encoding="utf-8"
        )
        self._format()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def command(self) -> list[str]:
        return ["java", HEAP, "-cp", self._libs, "kafka.Kafka", str(self._settings)]

    def _format(self) -> None:
        words = ["java", "-cp", self._libs, "kafka.tools.StorageTool", "format"]
        words += ["-t", _CLUSTER, "-c", str(self._settings)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise WrongResultError(f"Apache Kafka cannot be set up: {done.stdout}{done.stderr}")

    def is_ready(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 1):
            pass
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return len(admin.list_topics(timeout=10).brokers) == 1


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def new_topic() -> str:
    return f"bench-{uuid.uuid4().hex[:8]}"
