"""The history of each log: one fold, used by everything that reads the log.

A start of the engine, a reader beside a running owner, Spark's source and Spark's jobs all turn the
same entries into what they need. What an entry means is decided here and nowhere else; what is
built from it is the reader's business. So each module here has a fold, which is pure (no file, no
clock, entries in and calls out), and the protocol of its sink, which the readers implement.

Kafka's shared log and the machines' log have one fold each, in `kafka` and `machines`. Topics,
whose log is read in two ways, have two:

- `topics.TopicFold`: which topics there are, by name, id and epoch, and how far the files of each
  are good. It needs control frames only, so a start runs it over the whole log before it reads any
  index file, and a Spark job over summaries of single files (`recovery.topics.catalog`).
- `contents.TopicHistory`: what one topic holds: its records, a batch at a time, and the deletes,
  floors, settings, keys and leases between them, in the order of the log; and what follows at its
  end: which seqs never get a record.

Both share what is gone from the front of a topic (`contents.Floors`), and what a delete means.
Start reading with `topics`, then `contents`. What a live change makes of an owner's tables is
decided before it is written (`engine.machines.draft`); a fold is for what is read back.
"""
