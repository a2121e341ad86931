"""What the name of a master says."""

from __future__ import annotations

import os

import pytest

from headwater.core.errors import RequestError
from headwater.spark.sessions.session import Master, parse_master

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("name", "here", "in_process", "cores"),
    [
        ("local", True, True, 1),
        ("local[4]", True, True, 4),
        ("local[*]", True, True, CORES),
        ("local[2,3]", True, True, 2),
        ("local-cluster[2,1,1024]", True, False, 2),
        ("spark://127.0.0.1:7077", True, False, None),
        ("spark://localhost:7077", True, False, None),
        ("spark://[::1]:7077", True, False, None),
        ("spark://10.0.0.5:7077", False, False, None),
        ("spark://localhost:1,far.example:2", False, False, None),
        ("yarn", False, False, None),
        ("k8s://https://cluster.example:443", False, False, None),
    ],
)
def test_a_name_says_where_the_work_is_done(
    name: str, here: bool, in_process: bool, cores: int | None
) -> None:
    assert parse_master(name) == Master(name, here, in_process, cores)


@pytest.mark.parametrize("name", ["", "lokal[2]", "local[]", "local[two]", "spark://", "yarn2"])
def test_a_name_that_is_none_is_refused_with_examples(name: str) -> None:
    with pytest.raises(RequestError, match=r"no Spark master; write local\[\*\]"):
        parse_master(name)
