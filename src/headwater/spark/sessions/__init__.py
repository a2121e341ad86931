"""What opens a Spark session: its Java, its settings, and what executors are sent.

All of it runs in the driver. No topic is opened here.

1. `session.session` finds a Java (`java`), maps the class-data archive if there is one
   (`class_archive`, made by the job in `archive_training`), sets everything a session needs, sends
   the package to executors that may lack it (`package_zip`, which also reports what they have),
   registers the formats, and has `runtime` change in Spark what it can.
2. `spark_errors` turns what Spark raises back into the error of ours that caused it, so that exit
   codes and advice are the same with Spark as without.

Whatever the caller passes as `conf` wins over what is set here. Start reading in `session`.
"""
