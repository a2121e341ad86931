"""Recovery of Kafka's shared log: a checkpoint and its copy, and segments of a log and its index.

The checkpoint says which topics and segments there are, with a checksum over the entries of each
index. `survey` compares that with the files and walks what is younger, batch by batch, up to the
first that is not whole; `walk` is the one that walks. An event behind a bad batch may say that it
was synced: then it is damage, else the log merely ends there (I5). Its `SeenTopics` take in the
events, by the rules of `history.kafka`, and say whose a batch can be.

`table` has one word for each file and one row for each case, from which the survey's report is
made. `repair` cuts a torn tail, writes a checkpoint again from its copy and clears away what
nothing leads to; it can be repeated (I4). `plan` is what an operator may agree to when a start
refuses: an index put together again by `rebuild` from its log, with a hole for each record that is
lost.

`verify` checks one segment by itself, anywhere, and then compares everything with everything else.
`view` reads beside an owner, for Spark.

Start reading with `survey`, then `walk`.
"""
