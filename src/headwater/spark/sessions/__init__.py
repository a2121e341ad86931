"""What prepares Spark for this package: its Java, its session, and the processes they start.

All of it runs in the driver, except `fork_server`, which Spark starts once on each executor in
place of `pyspark.daemon` and which every Python worker is forked from, and `task_context`, which
tasks ask about themselves. No topic is opened here.

1. `session.session` finds a Java (`java`), maps the class-data archive if there is one
   (`class_archive`, made by the job in `archive_training`), sets everything a session needs, sends
   the package to executors that may lack it (`package_zip`), and registers the formats.
2. `optimizations` compiles small Java classes into the driver (`java_classes`): `column_pruning`
   reads only the columns a query uses, `projection_removal` saves a copy of each row,
   `filter_pushdown` makes pushed filters safe. On a Spark whose insides have changed each of them
   is left out with one line in the log: queries are slower and their results are the same.
3. `planner_processes` ends the processes Spark plans in without a traceback on the terminal.
4. `spark_errors` turns what Spark raises back into the error of ours that caused it, so that exit
   codes and advice are the same with Spark as without; `executor_probe` reports what executors have
   installed.

Whatever the caller passes as `conf` wins over what is set here. Start reading in `session`.
"""
