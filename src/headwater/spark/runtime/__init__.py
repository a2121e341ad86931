"""What is changed in Spark itself, and what it is asked about itself.

1. `optimizations` compiles small Java classes into the driver (`java_classes`): `column_pruning`
   reads only the columns a query uses, `projection_removal` saves a copy of each row,
   `filter_pushdown` makes pushed filters safe. On a Spark whose insides have changed each of them
   is left out with one line in the log: queries are slower and their results are the same.
2. `planner_processes` ends the processes Spark plans in without a traceback on the terminal.
3. `fork_server` is what Spark starts once on each executor in place of `pyspark.daemon`; every
   Python worker is forked from it.
4. `task_context` is what tasks ask about themselves, `arrow_schema` has Spark convert its schemas.

The source, the sink and the tables of a lake use this package, and `sessions` sets it up; it knows
none of them. Start reading in `optimizations`.
"""
