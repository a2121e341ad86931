"""The recovery of Kafka's shared log: look, decide by table, repair, report.

`survey` looks and changes nothing; `verdict` has the words for what it can see; `table` says what
is done about each; `repair` does that at a start, and `plan` shows what an operator may agree to
when a start refuses. `verify` holds everything against everything else, `beside` reads next to an
owner; both use the same survey, `walk` and `topics`.
"""
