"""Writing the format "headwater", batch and stream: rows become records, exactly once.

`data_writer` holds what Spark calls. On executors, a task turns record batches into JSON (`rows`,
`json_columns`), cuts them into chunks (`chunks`) and sends each chunk to the server under a key
made of the writer, the batch, the partition and its number (`topic_writer`, `sender`). On the
driver, the commit compares what an earlier run of the batch left and writes what is missing
(`topic_writer.BatchRepair`), then deletes the claims that cannot come back.

Promises, over retries, speculation, dead drivers and restarts of the server:

- A chunk is in the topic once. The server remembers keys for a while; past that, the sender finds
  its chunks by the mark in their first record (`chunks`).
- Before its first record a task writes a claim into the ledger, a topic beside the topic
  (`ledger`). A task of an earlier run sees the claim of the later one and stops.
- When the topic cannot tell any more whether rows are there, the write is refused; nothing is
  doubled.

Start reading in `sender`, whose docstring argues why this holds; the decision is record 0016.
"""
