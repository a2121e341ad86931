"""Queues: topics whose records are jobs, with leases for workers.

Owns the leases of each queue (`state.topic`; the rules are `QueueLeases` of `model.queue`)
and nothing on disk of its own: jobs are records, an ack is a delete, and a durable lease is a
frame in the topic's shard. Everything runs as the owner, except reading the records of claimed
jobs, which may wait for files. There is no thread per queue and no timer:
`claims` sweeps deadlines when a claim or a question comes, and a waiting claim sleeps until the
next change.

A claim: `operations` joins claims that come within one window and makes one pass for all of them;
`claims` draws ready jobs from the topic's index, shares them between the requests and grants
leases. Most claims need nothing from the log: a ceiling covers the numbers of claims, so that no
number is given twice (I3). A worker that leaves half way holds nothing. An ack writes one delete
frame; the job is gone when the log has it, and never comes back (I8). Each request is answered
exactly once (I15).

A job delivered too often, or damaged (I6), goes to the dead letter topic (`dead_letters`): the
copy is durable before the job is deleted, so a crash leaves both and loses none. A requeue is the
way back.

Start reading with `claims`, then `operations`.
"""
