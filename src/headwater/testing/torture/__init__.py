"""Everything at once, with kills: a program that tries to make Headwater break its promises.

`python -m headwater.testing.torture --minutes N --seed S` runs a real server in a process of its
own, lets every protocol write, read and settle at the same time, ends the process in the ways a
process ends, starts it again with other settings, and compares what is there with what clients
were answered. Nothing here asks the engine what should be there: the oracle is made of answers.

How it goes on:

- A **life** is one data directory. It begins empty and has some **rounds**. A life lies in a plain
  directory or, with root, on an ext4 image behind a loop device (`block_image`), where the power
  can fail and the disk can fill. Now and then a life is one of the engine alone on the fake disk.
- A **round** (`plan`) is a start with settings of its own, **checks** of every answer
  so far, a few seconds of load by all **actors**, perhaps a clock that jumps, a stopped process or
  a backup meanwhile, and an **end**: kill -9, SIGTERM, or loss of power.
- An **actor** (`actor`) is one protocol: the threads that use it during the load, a **ledger** of
  what they were answered, and the check after the next start. Actors share nothing.
- A **ledger** is pure and has no clock, so that a test can hand it answers that break a promise
  and see it complain (`tests/unit/testing/torture`). Every operation is acked, refused or unknown;
  what is unknown may have happened whole or not at all (I2), and once it was seen it is a fact.

The schedule follows from the seed: which settings, faults and ends, and what each actor means to
do. Which operation a kill meets does not: threads and processes run as they run. A life on the
fake disk follows from the seed entirely.

Start reading in `program`, then `round`, `topic_ledger`, `topics`.
"""

from headwater.testing.torture.outcome import BrokenPromise, RunOutcome, Tally
from headwater.testing.torture.topic_ledger import TopicLedger, TopicReading

__all__ = ["BrokenPromise", "RunOutcome", "Tally", "TopicLedger", "TopicReading"]
