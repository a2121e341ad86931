"""Recovery of the machines: look, decide by table, repair, replay, report; as the topics' is.

`survey` looks at names, CURRENT, FED, snapshots and every segment, and changes nothing. `judge`
compares what the segments hold with what witnesses vouch for. `table` has one row for whatever was
seen, and a test proves that it is total. `report` makes findings of that. `repair` quarantines and
mends at a start, or by an operator's consent; `replay` delivers the entries that count. A start and
`verify` read with the same eyes: `segment` is the only reader of segments, `snapshot` of snapshots.
"""
