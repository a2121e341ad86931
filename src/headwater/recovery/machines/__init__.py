"""Recovery of the machines: survey, decide by table, repair, replay, report; as the topics' is.

`survey` reads names, CURRENT, FED, snapshots and every segment, and changes nothing. `judge`
compares what the segments hold with what witnesses say was synced. `table` has one row for each
case, and a test proves that it is total. `report` makes findings of that. `repair` quarantines and
repairs at a start, or with an operator's consent; `replay` delivers the entries that count. A start
and `verify` share their readers: `segment` is the only one of segments, `snapshot` of snapshots.
"""
