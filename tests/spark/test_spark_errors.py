"""Errors of Spark come back as the errors of ours that they were, with their exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.core.errors import (
    DamageError,
    FormatError,
    HeadwaterError,
    OverloadedError,
    RequestError,
    TopicNotFoundError,
)
from headwater.spark.sessions.spark_errors import (
    JobFailedError,
    ModuleMissingError,
    explain,
    explained,
)

pytestmark = pytest.mark.spark

Batches = Iterable[pa.RecordBatch]


def damaged(batches: Batches) -> Iterator[pa.RecordBatch]:
    try:
        raise FormatError("frame_len is too small", 7)
    except FormatError as error:
        raise DamageError("bad frame", path="a.data", offset=7, advice="verify it") from error


def unknown(batches: Batches) -> Iterator[pa.RecordBatch]:
    raise TopicNotFoundError("no topic 'a: b'")


def overloaded(batches: Batches) -> Iterator[pa.RecordBatch]:
    raise OverloadedError("too much", 50)


def incomplete(batches: Batches) -> Iterator[pa.RecordBatch]:
    raise ModuleNotFoundError("No module named 'xxhash'")


def broken(batches: Batches) -> Iterator[pa.RecordBatch]:
    raise ZeroDivisionError("by zero")


@pytest.mark.parametrize(
    ("step", "kind", "message", "code"),
    [
        (damaged, DamageError, "bad frame in a.data at byte 7; verify it", 5),
        (unknown, TopicNotFoundError, "no topic 'a: b'", 2),
        (overloaded, OverloadedError, "too much", 3),
        (incomplete, ModuleMissingError, "an executor's Python has no module xxhash; install", 5),
        (broken, JobFailedError, "ZeroDivisionError: by zero", 5),
    ],
)
def test_the_error_of_a_task_is_the_error_of_the_job(
    spark: SparkSession,
    step: Callable[[Batches], Iterator[pa.RecordBatch]],
    kind: type[HeadwaterError],
    message: str,
    code: int,
) -> None:
    with pytest.raises(HeadwaterError) as caught, explained():
        spark.range(1).mapInArrow(step, "id long").collect()
    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert caught.value.exit_code == code
    assert "\n" not in str(caught.value)


def test_a_path_that_is_not_there_is_the_callers_to_mend(spark: SparkSession) -> None:
    with pytest.raises(RequestError, match="does not exist"), explained():
        spark.read.parquet("/no/such/place")


def test_the_last_error_of_a_chain_is_the_one_that_is_told() -> None:
    text = (
        "Traceback (most recent call last):\nheadwater.core.errors.FormatError: short (at 3)\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "headwater.core.errors.DamageError: bad frame in x\n\nDriver stacktrace:\n\tat a.b.C\n"
    )
    error = explain(PySparkException(message=text))
    assert isinstance(error, DamageError)
    assert str(error) == "bad frame in x"


def test_words_of_spark_lose_their_stack_and_their_lines() -> None:
    error = explain(PySparkException(message="Job aborted\n  due to this\n\tat org.apache.X\n"))
    assert isinstance(error, JobFailedError)
    assert str(error) == "Spark: Job aborted due to this"


def test_an_error_that_is_not_of_spark_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError), explained():
        raise ZeroDivisionError
