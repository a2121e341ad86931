"""Maintenance: file work that no caller waits for.

One thread runs a round (`housekeeping`) when woken and at every interval; the machines and Kafka's
log have a thread of the same class for their own rounds. A round decides as the
owner, works on files without it, and hands the results back. A failure is kept for readiness and
tried again in the next round; one topic's failure stops no other topic (I6), and a full disk is a
state in which the round still gives space back (I12).

In the order of a round:

1. `BackgroundLoader` loads an idle topic that has work.
2. `checkpointer` appends what the log holds to segments, syncs data, then index, writes a mark to
   the log and syncs it; only then does memory change. At every point a whole copy is readable
   (I1, I7).
3. `snapshotter` writes the metadata of all topics; log files go when two snapshots cover them.
4. `reclaimer` drops segments below the floors, rewrites mostly dead ones and moves old ones to
   the cold tier; it changes where bytes lie, never what a reader sees (I7, I8).

`reports` keeps what verifications and other jobs found, for the dashboard.

Start reading with `housekeeping`, then `checkpointer`.
"""
