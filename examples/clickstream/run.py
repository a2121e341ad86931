"""A click stream from a topic to a Delta table of sessions, and page counts back into a topic.

    headwater serve &
    python examples/clickstream/run.py --table /tmp/lake/sessions

Stop it at any moment and start it again: every session is in the table once, every count in the
topic once. `--send` writes the clicks of the example first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import clicks
import queries
from deltalake import DeltaTable

import headwater
import headwater.spark


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    flags.add_argument("--url", default="http://127.0.0.1:4000")
    flags.add_argument("--table", type=Path, required=True, help="where the Delta table is")
    flags.add_argument("--send", action="store_true", help="write the clicks first")
    given = flags.parse_args()
    if given.send:
        print(f"{clicks.send(given.url)} clicks sent")
    table = given.table.absolute()

    spark = headwater.spark.session("clickstream", "local[2]")
    stream = queries.clicks(spark, given.url)
    to_table = (
        queries.sessions(stream)
        .writeStream.format("headwater-table")
        .options(path=str(table), table="delta", appId="sessions")
        .option("checkpointLocation", f"{table}-checkpoint")
    )
    to_topic = (
        queries.page_counts(stream)
        .writeStream.format("headwater")
        .options(url=given.url, topic=queries.COUNTS_TOPIC, appId="page-counts")
        .option("checkpointLocation", f"{table}-counts-checkpoint")
    )
    for writer in (to_table, to_topic):
        writer.trigger(availableNow=True).start().awaitTermination()

    found = DeltaTable(table).to_pyarrow_table()
    bought = sum(found["bought"].to_pylist())
    print(f"{found.num_rows} sessions of {len(set(found['user'].to_pylist()))} users")
    print(f"{bought} of them bought something")
    with headwater.Client(given.url) as client:
        print(f"{client.state(queries.COUNTS_TOPIC).count} page counts")
    spark.stop()


if __name__ == "__main__":
    main()
