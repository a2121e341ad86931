"""`headwater show`: the structure of any one file of ours, field by field.

`command` reads the file, and `file_kinds` says by name and content what it is. Then one module for
each kind prints it as a `shown_file`, from the layout tables of `format`: `wal_file` frame by
frame, `segments` both files of a segment, `metadata` snapshots, CURRENT and REPAIRS, `parts` the
files of Kafka's log and of machines. Each gives the first problem it met; the exit code is 5 then.
Nothing is changed.
"""
