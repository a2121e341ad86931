"""Topics: records that are appended, read and deleted, and the way back after a crash.

Owns each topic's rules (`TopicLog` of `model`), its newest frames in memory (`tail`), its
segments and its settings (`topic`, `registry`). Everything here runs as the owner, except what
its docstring calls "anywhere": reads of files, which run on reader threads or in the caller's
thread.

A write: `record_encoding` checks and encodes before the owner sees the records; `appender` admits
them under pressure and limits (I13), takes their seqs, encodes frames once and submits one ticket
to the shard of the log; `publisher` gets the resolved tickets in the log's order, makes writes of
one group visible together (I2) and answers each exactly once (I15). A class whose acks do not
wait for a sync has its seqs under a durable ceiling, so none is handed out twice (I3).

A read: `reader` plans as the owner, from the index, what to read and where it lies, then reads it
anywhere; a slow disk delays only its reader (I14). Damaged records become a tombstone and are
never served (I6). `operations` joins planning, fetching, waiting and new tries when files
changed.

A control change (`lifecycle`, `creation`, `deletes`) is a frame in the topic's own shard and
takes effect in the log's order; a deleted record never comes back (I8), and floors never go back
(I10).

A start: `recovery` loads the snapshot, reads the index files of topics that the log mentions
(`loader`) and replays the log in two passes, so that recovering twice gives the same state (I4);
`losses` gives lost seqs their slots and readers a tombstone (I9). Idle topics are loaded later.

Start reading with `appender`, `publisher` and `reader`.
"""
