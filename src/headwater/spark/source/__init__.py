"""`spark.read` and `readStream` of the format "headwater": topics as rows.

Where records are read from is a `Location`: a data directory (`directory_location`,
`kafka_location`), a cold tier by itself (`cold_location`) or a server (`remote_location`). Each
query goes through three kinds of processes:

1. The driver registers `data_source.HeadwaterDataSource`; the options are checked in `options` and
   the columns chosen in `schema`.
2. A planning process beside the driver takes a `LocationSnapshot`, turns ranges of seqs into slices
   and groups them into partitions (`query_plan`). Nothing is locked: the owner may write meanwhile.
3. A Python worker of an executor reads each partition (`task_reader`): it asks the log what was
   deleted since planning (`deletions`), reads segment and log files (`split_reader`), applies
   filters and deletions, and puts the rows together as Arrow batches.

Promises: every seq of a slice is given once or reported as lost (I6, I8, I9), whatever the owner
rewrites, moves or deletes meanwhile; a task that does not find its files takes a snapshot of its
own and goes on behind the last row it gave. Losses and damage fail the query, or become rows of the
column `gap` with `failOnDataLoss=false`. A stream keeps nothing in memory between calls: where it
stands is in its checkpoint (`stream_reader`).

Start reading in `location`, then `directory_location`. `HeadwaterDataSource` may be imported from
here.
"""

from typing import TYPE_CHECKING

from headwater.core.late_names import late_names

if TYPE_CHECKING:
    from headwater.spark.source.data_source import HeadwaterDataSource

__getattr__ = late_names(
    __name__,
    {"headwater.spark.source.data_source": ("HeadwaterDataSource",)},
)

__all__ = ["HeadwaterDataSource"]
