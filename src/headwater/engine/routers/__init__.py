"""Routers: copies of one topic's records in another topic.

Owns the definitions and their positions, which are kept in `state`. A definition is a frame in
the shard of its destination (`definitions`); a position is a mark, written with checkpoints and
with what is flushed.

Copies are made on one thread (`ForwarderThread`), which does not exist until there is a router.
A round (`copy_rounds`) takes the sources whose turn it is by priority, reads a stretch of each
once for all routers at that position, encodes the copies (`copies`) and lets the owner publish
them (`copy_publisher`). Writers never wait for it, and under pressure it goes last (I13).

A copy is in its destination's memory only, until a checkpoint puts it into a segment: it costs no
log. A crash takes such copies, and they are made again from the source; a durable ceiling keeps
their seqs from other records (I3). Where the log speaks of a destination, `topics.lifecycle`
writes the unflushed copies and a mark in front of it, in one group, so that the log has all seqs
in order (I2) and a delete means the same copy after a restart (I8). What a source lost is a
tombstone in the destination (I9).

`operations` is what callers can do. Start reading with `definitions`, then `copy_rounds`.
"""
