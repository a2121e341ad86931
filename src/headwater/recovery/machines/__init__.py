"""Recovery of the machines: segments of their log, snapshots, CURRENT, FED and the histories.

`survey` reads names, CURRENT, FED, snapshots and every segment, and changes nothing. `segment` is
the only reader of segments, `snapshot` of snapshots: a start, verify, backups and Spark all use
them. `judge` goes through what the segments hold, in order,
and compares it with what the witnesses say was synced: each stretch of bad bytes is damage or a
torn tail (I5). `table` has one row for each case, from which the survey's report is made.

A damaged stretch is skipped, with a copy in quarantine, and instances it may be about are marked
as in doubt: machines go on where topics would refuse, because the entries behind it say what they
follow. `repair` does that at a start and can be repeated (I4); `plan` is for what a start refuses:
a snapshot that nothing stands in for, a segment that is gone.

`replay` delivers the entries that count, in order, while a survey reads them; `history.machines`
says what they mean.
`verify` turns findings into faults and adds what only a deep scan sees.

Start reading with `segment`, then `judge`.
"""
