"""State machines joined to a log of their own: apply, commit, watch, snapshot, compact.

Owns the directory `machines/`: definitions, instances, their log, snapshots, history, positions.
`host` opens it with the engine when it is there, else at the first call; a store that cannot be
opened for damage (I5) is away, and topics are served without it.

Threads: the owner decides and keeps the tables; the store's shard thread writes and syncs the
log; its maintenance thread expires, compacts and prunes (`maintenance`); any thread
reads the log from a plan (`log_reader`). The feeder's thread copies transitions to their topic
(`transition_feeder`).

A change: `dispatch` finds its operation, `operations` drives it, `store` checks it. `draft` sees
what is committed and what is on its way (`tables`), `book` alone gives offsets and submits one
ticket; events of one turn share one (`event_batcher`; a batch is whole or absent, I2). When the
log has it, its effects change `tables`, in the log's order, and the call is answered exactly once
(I15); an acknowledged change is there after a crash (I1). `responses` turns results into
what HTTP and programs get.

Followers (`watchers`, `dispatch`, webhooks, the feeder) read live from bounded memory and
earlier entries from the log; a slow one costs only itself (I14), and a gap is reported with its
range (I9). Compaction writes a snapshot first and deletes only what no retention hold needs (I7).

`recovery` is the start: scan, decide, fold the log into the tables, only then repair files (I4).
Start reading with `store`, then `book`.
"""

from headwater.core.late_names import late_modules

# A directory without machines needs `host` alone: the rest is loaded by the first call of machines.
__getattr__ = late_modules(
    __name__,
    (
        "answers",
        "dispatch",
        "log_reader",
        "operations",
        "positions",
        "responses",
        "store",
        "transition_feeder",
        "watchers",
    ),
)
