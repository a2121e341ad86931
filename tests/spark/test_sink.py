"""Rows of a data frame in a topic, written by real tasks to a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import headwater
from headwater.core.errors import TopicNotFoundError
from headwater.spark.sink.ledger import ledger_name
from tests.rig.server_process import ServerProcess

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("sink") / "data") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[headwater.Client]:
    with headwater.Client(server.url) as client:
        yield client


def rows_of(client: headwater.Client, topic: str) -> list[Any]:
    read: list[Any] = []
    cursor = 0
    while True:
        diff = client.diff(topic, cursor, limit=1_000)
        read += [record.data for record in diff.records]
        cursor = diff.next_from_seq
        if diff.caught_up:
            return read


def write(rows: DataFrame, server: ServerProcess, topic: str, **options: str) -> None:
    writer = rows.write.format("headwater").mode("append").option("url", server.url)
    writer.option("topic", topic).options(**options).save()


def test_a_data_frame_becomes_records_of_a_topic(
    spark: SparkSession, server: ServerProcess, client: headwater.Client
) -> None:
    rows = spark.range(0, 3_000, 1, 3).select(
        F.to_json(F.struct("id")).alias("data"),
        F.concat(F.lit("n"), F.col("id") % 2).alias("tag"),
    )
    write(rows, server, "frames", batchRecords="700")
    assert sorted(row["id"] for row in rows_of(client, "frames")) == list(range(3_000))
    state = client.state("frames")
    assert (state.count, state.config["durability"]) == (3_000, "fsync")
    assert client.state(ledger_name("frames")).count == 0


def test_columns_of_any_type_become_the_data(
    spark: SparkSession, server: ServerProcess, client: headwater.Client
) -> None:
    rows = spark.sql(
        """select 1 number, 'text' word, true yes, 1.50 price, date'2026-01-31' day,
                  timestamp'2026-01-31 12:00:00' at, array(1, 2) list, map('k', 1) map,
                  struct(1 a, 'b' b) inner, cast('x' as binary) raw, cast(null as int) nothing,
                  parse_json('{"v":[1,null]}') variant, 'a tag' tag"""
    )
    write(rows, server, "types")
    assert rows_of(client, "types") == [
        {
            "number": 1, "word": "text", "yes": True, "price": 1.5, "day": "2026-01-31",
            "at": "2026-01-31T12:00:00.000000Z", "list": [1, 2], "map": {"k": 1},
            "inner": {"a": 1, "b": "b"}, "raw": "eA==", "variant": {"v": [1, None]},
        }
    ]  # fmt: skip
    assert client.diff("types").records[0].tag == "a tag"


def test_a_write_under_an_id_is_made_once(
    spark: SparkSession, server: ServerProcess, client: headwater.Client
) -> None:
    rows = spark.range(100).select(F.to_json(F.struct("id")).alias("data"))
    for _ in range(2):
        write(rows, server, "once", writeId="import-7")
    assert len(rows_of(client, "once")) == 100


@pytest.mark.slow
def test_tasks_that_fail_and_are_tried_again_double_nothing(
    spark: SparkSession, server: ServerProcess, client: headwater.Client, tmp_path: Path
) -> None:
    """The first attempt at every partition dies after some of its chunks, by a bad row."""
    marker = str(tmp_path / "failed")
    url = server.url

    def until_something_is_there() -> None:
        """Rows go to the sink through buffers; on a busy machine it begins after they are full."""
        pause = threading.Event()
        with headwater.Client(url) as reader:
            for _ in range(300):
                try:
                    if reader.state("retried").head_seq:
                        return
                except TopicNotFoundError:
                    pass
                pause.wait(0.1)

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == 25 and not Path(f"{marker}-{context.partitionId()}").exists():
                Path(f"{marker}-{context.partitionId()}").touch()
                until_something_is_there()
                raise RuntimeError("the first attempt dies here")
            yield batch

    rows = spark.range(0, 30_000, 1, 2).select(F.to_json(F.struct("id")).alias("data"))
    rows = rows.mapInArrow(fail_once, "data string")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 500)
    try:
        with pytest.raises(PySparkException, match="the first attempt dies here"):
            write(rows, server, "retried", batchRecords="500", writeId="retried")
        assert 0 < len(rows_of(client, "retried")) < 30_000
        for partition in range(2):
            Path(f"{marker}-{partition}").touch()
        write(rows, server, "retried", batchRecords="500", writeId="retried")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert sorted(row["id"] for row in rows_of(client, "retried")) == list(range(30_000))


def test_a_stream_writes_every_batch_once_over_restarts(
    spark: SparkSession, server: ServerProcess, client: headwater.Client, tmp_path: Path
) -> None:
    incoming = tmp_path / "in"
    incoming.mkdir()
    for number in range(4):
        lines = [f'{{"id":{number * 100 + each}}}' for each in range(100)]
        (incoming / f"{number}.txt").write_text("\n".join(lines))
        query = (
            spark.readStream.text(str(incoming))
            .withColumnRenamed("value", "data")
            .writeStream.format("headwater")
            .option("url", server.url)
            .option("topic", "stream")
            .option("appId", "stream-of-files")
            .queryName("files")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert query.exception() is None
    assert [row["id"] for row in rows_of(client, "stream")] == list(range(400))
    assert client.state(ledger_name("stream")).count == 1

    # The same files with a new checkpoint, under the same name.
    query = (
        spark.readStream.text(str(incoming))
        .withColumnRenamed("value", "data")
        .writeStream.format("headwater")
        .options(url=server.url, topic="stream", appId="stream-of-files")
        .option("checkpointLocation", str(tmp_path / "lost"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="from another checkpoint"):
        query.awaitTermination()
    assert len(rows_of(client, "stream")) == 400


@pytest.mark.parametrize(
    ("select", "options", "message"),
    [
        ("'1' data", {"path": "/data"}, "a data directory has one owner"),
        ("'1' data, 2 other", {}, "no place for: other"),
        ("'nope' data", {}, "row 0 of partition 0: data is not JSON"),
    ],
)
def test_what_cannot_be_written_is_refused_with_what_to_do(
    spark: SparkSession, server: ServerProcess, select: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.sql(f"select {select}"), server, "refused", **options)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, server: ServerProcess) -> None:
    with pytest.raises(PySparkException, match="can only be appended to"):
        spark.sql("select '1' data").write.format("headwater").mode("overwrite").options(
            url=server.url, topic="overwritten"
        ).save()
