"""Group commit: tickets in, one write and at most one sync per group, acks out in order.

A `Shard` is one thread and one log. Anyone submits a ticket; the shard's thread asks its `groups`
for the next group and has the `committer` write it, answer what needs no sync, sync, and answer the
rest (I5, I11, I12, I15). The files are a dialect's: `frame_log` for topics, `entry_log` for
machines, `batch_log` for Kafka. `policy` says which acks wait for a sync and whether a group waits
for company.

There are two `groups`. `QueuedGroups` serve any log, disk and clock, in Python. `CompiledGroups`
take the topics' log on a real disk: as long as groups are common the thread stays in
`native/writer`, without the interpreter, and a loop collects the answers when a descriptor rings.
What is not common goes through the committer in both, so there is one place for rotation, a full
disk, a failed sync and classes that do not wait.

Start reading in `shard`, then `queue` and `committer`.
"""
