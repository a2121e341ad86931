"""What a start does after any crash, and what verify and repair do offline. One shape for all.

There are three stores in a data directory: `topics` (the write-ahead log of native topics),
`machines` and `kafka`. Each has a package here with the same modules, which are the same steps:

- `survey` reads every file that a start needs and changes nothing. The witnesses' rule tells an
  unfinished write from damage to bytes that were acknowledged (I5). Survey and table together give
  the report: findings, for people, programs and errors (for topics, in `report`);
- `table` has one word for each thing that a survey can find, and says what is done about each.
  Nothing is decided anywhere else, and a test proves that every case has exactly one row;
- `repair` does at a start what loses nothing that was acknowledged, and can be repeated (I4). What
  leaves its place goes to quarantine; on doubt nothing is deleted;
- `plan` is what an operator may agree to where a start refuses. It is made and shown first;
- `verify` reads everything, also what a start does not need.

What they share stands here: `directory` sorts the names of a directory, and says what the system
does not give of it; `finding` has the actions, the mechanism of the tables, the reports and the
shape of a plan, `repair` what becomes of bytes and of the end of a log file. `stores` lists the
stores for those who go through all of them.

`history` has the one fold of each log: what its entries mean, once it is known which count.

All of it runs where it is called: in the thread that starts an engine, in a command, in a Spark
task. Files are read through the disk seam. Only `repair` and a plan that is carried out write, and
their callers hold the lock of the data directory; everything else may run beside an owner, and what
the owner changes meanwhile is an error that says "read again", or agreed upon by two inspections.

Start reading with `topics.survey`, then `topics.table`, then `topics.repair`.
"""
