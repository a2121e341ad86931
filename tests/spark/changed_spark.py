"""A Spark whose insides have changed: `python -m tests.spark.changed_spark DIRECTORY WHEN`.

What the compiled classes ask of Spark is renamed in their source, so that they miss it as on
another version: `before` while they are made, `while` when a query is planned. It prints which
are active and what queries answer, as JSON.
"""

from __future__ import annotations

import json
import sys
from types import ModuleType

import headwater.spark
from headwater.spark.runtime import column_pruning, filter_pushdown, projection_removal
from headwater.spark.runtime.optimizations import optimize
from tests.spark.conftest import QUICK

CHANGES: dict[str, list[tuple[ModuleType, str, str]]] = {
    "before": [
        (filter_pushdown, '"ds"', '"renamed"'),
        (column_pruning, "catalyst.plans.logical.Filter;", "catalyst.plans.logical.Renamed;"),
        (projection_removal, "execution.FilterExec;", "execution.Renamed;"),
    ],
    "while": [
        (column_pruning, '"ds"', '"renamed"'),
        (projection_removal, "if (planned.size() != 1", "if (((Seq) (Object) plan).size() != 1"),
    ],
}


def main(directory: str, when: str) -> None:
    for module, old, new in CHANGES[when]:
        source = vars(module)["_JAVA"]
        assert old in source
        vars(module)["_JAVA"] = source.replace(old, new)
    settings = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": QUICK}
    spark = headwater.spark.session("changed", "local[1]", **settings)
    headwater.spark.register(spark)  # a second time: what is told is told once
    frame = spark.read.format("headwater").options(path=directory, topic="orders").load()
    tags = frame.where("seq < 20").select("seq", "tag")
    joined = tags.join(frame.where("seq > 10").select("seq", "data"), "seq")
    results = {
        "active": optimize(spark),
        "count": frame.count(),
        "late": frame.where("seq > 40").select("tag").count(),
        "joined": joined.count(),
        "rows": len(frame.collect()),
    }
    spark.stop()
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
