"""A pipeline in a process of its own, to be killed: `python -m tests.spark.pipeline_process FILE`.

FILE is JSON and says what to do:

| field | |
|---|---|
| job | `lake`, or `topic`: the stream of one topic into another |
| url, source, target, checkpoint, format, master | where from and where to |
| die | `before` or `after` the commit, or null |
| fields | for the lake |
| gate | a directory: the n-th batch of rows of a task waits for a file `n` in it; or null |

It prints `started`, and `done` at the end. Dying is SIGKILL of the driver: its Python and its JVM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headwater.spark
from headwater.spark.jobs import lake
from headwater.spark.jobs.job import Place
from headwater.spark.jobs.lake import LakeOptions
from headwater.spark.jobs.lake_rows import Kind
from headwater.spark.sink.data_writer import StreamWriter
from headwater.spark.source.data_source import HeadwaterDataSource

STEP_S = 0.05


def killer(spark: Any) -> Callable[[], None]:
    """Something that ends the driver, wherever it is called."""
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    pids = (int(java), os.getpid())

    def kill() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    return kill


def waiting_for_the_gate(gate: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        pause = threading.Event()
        for number, batch in enumerate(batches):
            while not (Path(gate) / str(number)).exists() and not (Path(gate) / "all").exists():
                pause.wait(STEP_S)
            yield batch

    return wait


def run_lake(spark: Any, plan: dict[str, Any]) -> None:
    options = LakeOptions(
        place=Place(url=plan["url"], topics=(plan["source"],)),
        table=plan["target"],
        format=plan["format"],
        checkpoint=plan["checkpoint"],
        fields=plan["fields"],
        records_per_batch=plan["records_per_batch"],
    )
    if plan["die"]:
        tables = options.tables()
        main = tables[Kind.MAIN]
        commit, kill = main.commit, killer(spark)

        def die(landing: Any, files: Any) -> None:
            if landing.batch < plan["die_in_batch"]:
                commit(landing, files)
                return
            if plan["die"] == "after":
                commit(landing, files)
            kill()

        main.commit = die  # type: ignore[method-assign]
        LakeOptions.tables = lambda self: tables  # type: ignore[method-assign]
    if plan["gate"]:
        read = lake.read_topics
        wait = waiting_for_the_gate(plan["gate"])
        lake.read_topics = lambda *given: (rows := read(*given)).mapInArrow(wait, rows.schema)
    lake.run(spark, options)


def run_topic(spark: Any, plan: dict[str, Any]) -> None:
    die, die_in, kill = plan["die"], plan["die_in_batch"], killer(spark)

    class DyingWriter(StreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            if die == "before" and batchId >= die_in:
                kill()
            super().commit(messages, batchId)
            if die == "after" and batchId >= die_in:
                kill()

    class DyingSource(HeadwaterDataSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            return DyingWriter(super().streamWriter(schema, overwrite)._options)  # type: ignore[attr-defined]

    spark.dataSource.register(DyingSource)
    rows = (
        spark.readStream.format("headwater")
        .options(url=plan["url"], topic=plan["source"])
        .option("maxRecordsPerTrigger", plan["records_per_batch"])
        .load()
        .select("data", "tag")
    )
    if plan["gate"]:
        rows = rows.mapInArrow(waiting_for_the_gate(plan["gate"]), rows.schema)
    query = (
        rows.writeStream.format("headwater")
        .options(url=plan["url"], topic=plan["target"], batchRecords="500")
        .option("checkpointLocation", plan["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


JOBS = {"lake": run_lake, "topic": run_topic}


def main(plan: dict[str, Any]) -> None:
    spark = headwater.spark.session(
        "to be killed",
        plan["master"],
        spark_driver_memory="1g",
        spark_driver_extraJavaOptions="-XX:TieredStopAtLevel=1",
        **{
            "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
            # A killed executor is noticed by its connection; the rest of the wait is for nothing.
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        },
    )
    sys.stdout.write("started\n")
    sys.stdout.flush()
    JOBS[plan["job"]](spark, plan)
    sys.stdout.write("done\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
