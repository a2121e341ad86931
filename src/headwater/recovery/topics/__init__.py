"""Recovery of the topics' log: the shards of `wal/`, and what snapshots and segments add to it.

`survey` lists the shards and their files, reads CURRENT and REPAIRS, and has every file scanned
from mark to mark by `scan`, the one reader of log files. Where the groups of a file end, the
witnesses decide what the rest is. `table` has the words and one row for each case, `report` makes
findings of that, `repair` finishes a rotation or a trim, overwrites a torn tail
with zeros (I4, I5) and says where a writer goes on. `plan` passes over what is damaged, with an
operator's consent, and writes that into REPAIRS.

Then the log is read: `replay` gives its groups in the order they were written, and many frames
at a time as columns. `history` says what they mean; `catalog` is which topics there are, from a
snapshot and the log; `snapshots` and `stored_topic` read what was checkpointed.

Beside an owner, `report` believes what two surveys in a row agree on, and `follower` reads on
from where a survey ended. `parallel_survey` gives the same report as a survey with the files
scanned anywhere. `repair.open_wal` is all of it for the engine: lock, recover, replay, write.

Start reading with `survey`, then `scan`.
"""
