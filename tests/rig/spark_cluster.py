"""A Spark cluster on this machine: a standalone master and a worker, each a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path

import pyspark

from headwater.spark.sessions.class_archive import find_archive, options_to_use
from headwater.spark.sessions.java import find_java

LOOPBACK = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent
MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
START_WITHIN_S = 60


class Daemon:
    """One JVM of a cluster. Its log is read to the end, or it would block on a full pipe."""

    def __init__(self, *words: str) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._over = False
        self._process = subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, sign: str) -> str:
        """What the log says at the place where `sign` matches."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._found(sign) or self._over, START_WITHIN_S)
            found = self._found(sign)
            assert found is not None, self.lines
            return found

    def end(self) -> None:
        self._process.kill()
        self._process.wait(60)
        self._reader.join()

    def _found(self, sign: str) -> str | None:
        matches = (re.search(sign, line) for line in self.lines)
        return next((found[1] for found in matches if found is not None), None)

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as log:
            for line in log:
                with self._changed:
                    self.lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()


class StandaloneCluster:
    """`with StandaloneCluster(directory) as cluster:`; `cluster.master` is the name for jobs."""

    def __init__(self, directory: Path, *, cores: int = 2, memory: str = "1g") -> None:
        self.master = ""
        self._work = ("--work-dir", str(directory), "--memory", memory, "--cores", str(cores))
        self._daemons: list[Daemon] = []

    def __enter__(self) -> StandaloneCluster:
        address = ("--host", LOOPBACK, "--port", "0", "--webui-port", "0")
        try:
            master = Daemon(MASTER_CLASS, *address)
            self._daemons.append(master)
            self.master = master.wait_for(r"Starting Spark master at (spark://\S+)")
            worker = Daemon(WORKER_CLASS, *address, *self._work, self.master)
            self._daemons.append(worker)
            worker.wait_for(r"Successfully registered with (\S+)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.end()
        self._daemons = []


def _environment() -> dict[str, str]:
    java = find_java()
    archive = find_archive(java, pyspark.__version__)
    mapped = "" if archive is None else options_to_use(java, archive)
    return {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-XX:TieredStopAtLevel=1 {mapped}",
    }
