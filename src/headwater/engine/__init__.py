"""The engine: one data directory, opened, recovered and served to one process.

It joins the packages below it (`format`, `disk`, `model`, `wal`, `store`, `recovery`) into
promises. All domain state belongs to one owner: the thread of an event loop, or the thread that
holds the baton (`owner`). The engine's own code takes no locks around that state. Other threads
work on files only and hand their results to the owner:

- each shard thread of `wal` writes and syncs one log, and posts a batch of resolved tickets;
- the maintenance thread (`maintenance`) moves records from the log to segments and gives space
  back;
- the forwarder thread (`routers`) reads sources and encodes copies;
- reader threads fetch what may wait for a disk (I14).

Packages, each with its own theory of operation, from the bottom up: `state` (what is in memory),
`topics` (write and read path), `queues` (claims and acks), `routers` (copies between topics),
`start` (back from the files), `maintenance`, `machines` (state machines with a log of their own),
`read_only` (a reader beside an owner), `kafka` (Kafka's shared log and the shapes that join it with
topics), `backup`. What all of them use stays at the top: `owner` (and what is pending with it),
`turn` (what comes together is submitted together, to any log), `operation` (what a caller can do,
as a generator of steps), `drivers` (how threads and event loops do the steps), `pressure` (whose
turn it is). Each imports only what is below it.

Start reading with `state`, then `engine`, which builds these parts and recovers, then `opening`.
`async_database` and its generated twin `database` are what programs use: they inherit the calls of
`api`, and `call_operations` has the operation for each.
"""

from headwater.core.late_names import late_modules

# An event loop needs neither.
__getattr__ = late_modules(__name__, ("database", "read_only"))
