"""A start: topics and routers out of the files, as the last run left them.

Runs before anything is served, on the thread that opens, and owns nothing afterwards. A reader
beside an owner runs the same on a scan of the log (`read_only`).

`topic_recovery` loads the snapshot, reads the index files of topics that the log mentions
(`topics.loader`) and replays the log in two passes, so that recovering twice gives the same state
(I4). It gives lost seqs their slots and readers a tombstone (I9); a class whose acks do not wait
for a sync goes on above every seq it may have acknowledged (I3). `router_replay` brings routers
back and fills what a crash left open in their destinations. Idle topics are loaded later.

Start reading with `topic_recovery`.
"""
