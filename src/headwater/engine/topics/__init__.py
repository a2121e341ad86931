"""Topics: records that are appended, read and deleted.

Works on the topics of `state`. Everything here runs as the owner, except what its docstring calls
"anywhere": reads of files, which run on reader threads or in the caller's thread.

A write: `record_encoding` checks and encodes before the owner sees the records; `appender` admits
them under pressure and limits (I13), takes their seqs, encodes frames once and submits one ticket
to the shard of the log; `publisher` gets the resolved tickets in the log's order, makes writes of
one group visible together (I2) and answers each exactly once (I15). A class whose acks do not
wait for a sync has its seqs under a durable ceiling, so none is handed out twice (I3).

A read: `reader` plans as the owner, from the index, what to read and where it lies, then reads it
anywhere; a slow disk delays only its reader (I14). Damaged records become a tombstone and are
never served (I6). `operations` joins planning, fetching, waiting and new tries when files
changed.

A control change (`lifecycle`) is a frame in the topic's own shard and
takes effect in the log's order; a deleted record never comes back (I8), and floors never go back
(I10). Copies that routers made are in memory only; `lifecycle` puts them in front of what the log
says about their topic.

`loader` reads a topic back from its index files, when a call first needs it.

Start reading with `appender`, `publisher` and `reader`.
"""
