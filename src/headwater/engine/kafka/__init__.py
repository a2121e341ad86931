"""Kafka's topics on one shared log, and log topics of the engine among them.

Owns the directory `kafka/`: one log of batches for all partitions of all organisations, with a
dense index, a checkpoint, and the state of groups and producers. A partition is a set of ids in
that log; an offset is a rank in it (`partition`).

Threads: the owner keeps the state (`core`); the log's shard thread writes
and syncs; a maintenance thread runs `housekeeping`: retention, expiry of producers, space,
checkpoints. Any thread reads a fetch plan (`fetch_plan`), so a slow disk delays only its reader
(I14).

Produce: `batch_appender` checks the producer (`producers`) and gives the batch its offsets as it
came; all batches of a turn are submitted together at its end (`engine.turn`). They take effect when
the log has them, the same as in a replay (I4), and each request is answered exactly once (I15). An
acknowledged batch is there after a crash (I1), whole or not at all (I2). Fetch: `fetch_plan` plans
as the owner and serves whole batches, each checked; damage is an error at its offset and never
skipped (I6). Groups: `coordinator` has the clock and the log, `group_state` what a restart brings
back: members and committed offsets.

Space: `checkpointer` writes the state that no longer needs the log, `space_reclaimer` deletes and
rewrites segments only after it (I7). A store whose log cannot be opened (I5) is replaced by
`unavailable`.

A partition is one for every protocol (`engine.partition`). Other protocols than Kafka's find it by
name in `kafka_partitions`, which makes one batch of their records; `partition_reads` makes frames
of its batches. Kafka clients find theirs in `joined_store`, log topics of the engine among
them: `native_topics`, from batches to records and back.
Start reading with `store`.
"""

from headwater.core.late_names import late_modules

# Of these a server takes what it needs when its first client of Kafka comes.
__getattr__ = late_modules(
    __name__, ("coordinator", "joined_store", "kafka_partitions", "store", "unavailable")
)
