"""`headwater wal` and `headwater repair`: the write-ahead log of a data directory.

`verify` says whether a start would take the log, `dump` prints its frames, `repair` plans and, with
--apply, carries out what can be saved in every store. They show what `headwater.recovery` finds and
judge nothing themselves; `frame_regions` cuts a file into whole groups and what lies between.
"""
