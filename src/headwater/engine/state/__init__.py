"""What the engine holds in memory while it runs. For the owner only, and plain data.

Everything else in the engine is built on this package, and this package on none of them: it can be
read without them. `engine_core` is the one object that all parts share: disk, clock, settings, the
log, counters, and which topics have work to do. From it everything else is reached:

- `topic`: a topic with its rules (`TopicLog` of `model`), newest frames, segments, queue, routes,
  and all topics by name and number; and the routers between them, with what of their copies is not
  in the log yet;
- `retention_holds`: the consumers that need old log. Nothing that they hold is deleted, and a hold
  that gives way to its limit says so (I9);
- `damage`: what cannot be served, and why (I5, I6). Any thread may add to it.

Start reading with `topic`, then `engine_core`.
"""
