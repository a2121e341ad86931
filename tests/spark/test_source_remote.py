"""The source over HTTP: the same rows, losses and streams as from the files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, StringStartsWith

import headwater
from headwater.client import ForbiddenError, UnauthorizedError, UnreachableError
from headwater.core.errors import DataLossError, RequestError, TopicNotFoundError
from headwater.spark.source.data_source import HeadwaterDataSource
from headwater.spark.source.options import source_options
from headwater.spark.source.stream_reader import StreamReader
from tests.rig.server_process import ServerProcess
from tests.spark.direct_reader import Row, every_row, options_of, read, read_all, reader_of

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("remote") / "data") as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[headwater.Client]:
    with headwater.Client(server.url) as client:
        yield client


def write(client: headwater.Client, topic: str, count: int, **settings: Any) -> None:
    if settings:
        client.create(topic, **settings)
    for start in range(1, count + 1, 1_000):
        records = [
            {"data": {"n": n}, "tag": f"t{n % 3}", "meta": {"m": n}}
            for n in range(start, min(start + 1_000, count + 1))
        ]
        client.append(topic, records, node="web")


def over_http(server: ServerProcess, **options: Any) -> list[Row]:
    return read(None, url=server.url, **options)


def test_rows_over_http_are_those_of_the_engine_and_of_the_files(
    server: ServerProcess, client: headwater.Client
) -> None:
    write(client, "same", 2_500)
    client.delete("same", match="t1")
    client.delete("same", before_seq=100)
    expected, _ = every_row(client, "same")
    assert over_http(server, topic="same") == expected
    assert over_http(server, topic="same", rowsPerPartition=700) == expected
    assert read(server.directory, topic="same") == expected


def test_partitions_are_ranges_of_seqs_and_filters_prune_them(
    server: ServerProcess, client: headwater.Client
) -> None:
    write(client, "pruned.a", 100)
    write(client, "pruned.b", 100)
    reader = reader_of(None, url=server.url, topicPattern=r"pruned\..*", rowsPerPartition=30)
    assert len(reader.partitions()) == 8
    kept = [GreaterThan(("seq",), 50), StringStartsWith(("topic",), "pruned.b")]
    assert list(reader.pushFilters(kept)) == []
    assert len(reader.partitions()) == 2
    read = over_http(
        server,
        topics="pruned.a,pruned.b",
        filters=[In(("seq",), (3, 70)), EqualTo(("tag",), "t1")],
    )
    assert [(row["topic"], row["seq"]) for row in read] == [("pruned.a", 70), ("pruned.b", 70)]


def test_fields_and_payloads_are_the_same_over_http(
    server: ServerProcess, client: headwater.Client
) -> None:
    write(client, "typed", 3)
    rows = over_http(server, topic="typed", fields="n long", payload="binary")
    assert [(row["n"], row["data"]) for row in rows] == [(n, b'{"n":%d}' % n) for n in range(1, 4)]


def test_losses_are_told_with_range_and_reason(
    server: ServerProcess, client: headwater.Client
) -> None:
    write(client, "capped", 50, cap_records=10)
    with pytest.raises(DataLossError, match=r"'capped' has lost seqs 5 to 40 \(cap\)"):
        over_http(server, topic="capped", startingSeq=5)
    rows = over_http(server, topic="capped", startingSeq=5, failOnDataLoss=False)
    assert rows[0]["gap"]["gap_to"] == 40
    assert [row["seq"] for row in rows[1:]] == list(range(41, 51))
    assert len(over_http(server, topic="capped")) == 10


def test_what_is_lost_between_planning_and_reading_is_told_over_http(
    server: ServerProcess, client: headwater.Client
) -> None:
    write(client, "later", 50)
    reader = reader_of(None, url=server.url, topic="later", failOnDataLoss=False)
    planned = reader.partitions()
    client.create("later", cap_records=5)
    rows = read_all(reader, planned)
    assert (rows[0]["gap"]["gap_from"], rows[0]["gap"]["gap_to"]) == (1, 45)
    assert [row["seq"] for row in rows[1:]] == list(range(46, 51))
    client.drop("later")
    assert [row["gap"]["reason"] for row in read_all(reader, planned)] == ["dropped"]
    write(client, "later", 60)
    assert [row["gap"]["reason"] for row in read_all(reader, planned)] == ["recreated"]
    strict = reader_of(None, url=server.url, topic="later")
    with pytest.raises(DataLossError, match="recreated"):
        read_all(strict, planned)


def test_a_time_to_begin_at_is_found_by_halves(
    server: ServerProcess, client: headwater.Client
) -> None:
    for _ in range(40):
        client.append("timed", {"data": {"n": 1}})
    client.delete("timed", before_seq=3)
    rows = over_http(server, topic="timed")
    for row in (rows[0], rows[len(rows) // 2], rows[-1]):
        stream = stream_of(server, topic="timed", startingTimestamp=row["ts"].isoformat())
        first = next(each["seq"] for each in rows if each["ts"] >= row["ts"])
        assert stream.initialOffset()["topics"]["timed"]["seq"] == first - 1
    late = stream_of(server, topic="timed", startingTimestamp="2999-01-01T00:00:00Z")
    assert late.initialOffset()["topics"]["timed"]["seq"] == rows[-1]["seq"]


def stream_of(server: ServerProcess, **given: Any) -> StreamReader:
    options = options_of(None, {"url": server.url, **given})
    return StreamReader(source_options(options), HeadwaterDataSource(options).schema())


def test_a_stream_over_http_reads_each_record_once_while_it_is_written(
    server: ServerProcess, client: headwater.Client
) -> None:
    client.create("live")
    stream = stream_of(server, topic="live", maxRecordsPerTrigger=700)
    offset = stream.initialOffset()
    seqs: list[int] = []
    writer = threading.Thread(target=write, args=(client, "live", 5_000))
    writer.start()
    while len(seqs) < 5_000:
        end = stream.latestOffset(offset, stream.getDefaultReadLimit())
        rows = read_all(stream, stream.partitions(offset, end))
        assert len(rows) <= 700
        seqs += [row["seq"] for row in rows]
        offset = end
    writer.join()
    assert seqs == list(range(1, 5_001))


def test_errors_of_the_server_are_told_as_what_they_are(tmp_path: Path) -> None:
    keys = {"HEADWATER_API_KEYS": "good-key:read:open.,writer-key:write+admin"}
    with ServerProcess(tmp_path / "data", **keys) as server:
        with headwater.Client(server.url, token="writer-key") as client:
            client.append("open.a", {"data": 1})
            client.append("closed.a", {"data": 1})
        url = server.url
        assert len(read(None, url=url, token="good-key", topic="open.a")) == 1
        assert len(read(None, url=url, token="good-key", topicPattern=".*")) == 1
        with pytest.raises(ForbiddenError):
            read(None, url=url, token="good-key", topic="closed.a")
        with pytest.raises(UnauthorizedError):
            read(None, url=url, topic="open.a")
        with pytest.raises(TopicNotFoundError):
            read(None, url=url, token="good-key", topic="open.b")
    with pytest.raises(RequestError, match="the address of a server"):
        read(None, url="127.0.0.1", topic="a")


def test_a_server_that_is_gone_is_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.client import retry

    monkeypatch.setattr(retry.Retry, "delay_s", lambda *_: 3_600.0)
    with pytest.raises(UnreachableError, match="is the server running"):
        read(None, url="http://127.0.0.1:9", topic="a")
