"""The recovery of Kafka's shared log: survey, decide by table, repair, report.

`survey` reads and changes nothing; `verdict` has the words for what it can find; `table` says what
is done about each; `repair` does that at a start, and `plan` shows what an operator may agree to
when a start refuses. `verify` compares everything with everything else, `view` reads beside an
owner; both use the same survey, `walk` and `topics`.
"""
